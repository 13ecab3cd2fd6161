# SPDX-License-Identifier: MIT OR Apache-2.0
"""Results of `dmabuf-dio-bench load`."""

import pathlib

from . import results
from .results import Object

BASE = "normal"


class Size(Object):
    def __init__(self, data: dict) -> None:
        super().__init__(data)
        # Milliseconds in all, and CPU time of the process: medians of the runs, by scheme
        self.total, self.cpu = (
            {row.name: row.figures[name].median for row in self.measured("rows") if name in row.figures}
            for name in ("total_ms", "total_cpu_ms"))

    def relative(self, scheme: str) -> float | None:
        """Time relative to the first scheme."""
        if scheme not in self.total or BASE not in self.total:
            return None
        return self.total[scheme] / self.total[BASE]


class Load(Object):
    def __init__(self, data: dict) -> None:
        super().__init__(data)
        self.sizes = [Size(size) for size in data.get("sizes", ())]


def read(path: pathlib.Path) -> Load:
    return Load(results.read(path, "load"))
