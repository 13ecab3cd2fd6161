# SPDX-License-Identifier: MIT OR Apache-2.0
"""Results of `dmabuf-dio-bench load`."""

import dataclasses
import pathlib

from . import results

BASE = "normal"


@dataclasses.dataclass(frozen=True)
class Size:
    bytes: int
    # Milliseconds in all, median of the runs, by scheme
    total: dict[str, float]
    # The same of CPU time of the process
    cpu: dict[str, float]

    def relative(self, scheme: str) -> float | None:
        """Time relative to the first scheme."""
        if scheme not in self.total or BASE not in self.total:
            return None
        return self.total[scheme] / self.total[BASE]


@dataclasses.dataclass(frozen=True)
class Load:
    kernel: str
    runs: int
    sizes: list[Size]


def read(path: pathlib.Path) -> Load:
    data = results.read(path, "load")
    return Load(data["kernel"], data["runs"], [
        Size(size["bytes"], _medians(size, "total_ms"), _medians(size, "total_cpu_ms"))
        for size in data.get("sizes", ())])


def _medians(size: dict, name: str) -> dict[str, float]:
    return {row["name"]: figure.median for row in size.get("rows", ())
            if (figure := results.of_runs(row, name))}
