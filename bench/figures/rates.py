# SPDX-License-Identifier: MIT OR Apache-2.0
"""Results of `dmabuf-dio-bench rates`, and their table."""

import pathlib

from . import results
from .markdown import markdown
from .results import Object

LOADS = {"idle": "idle machine", "busy": "a busy thread for each CPU"}


class Row(Object):
    @property
    def share(self) -> float:
        """Lost frames, of all that the device has numbered."""
        every = self.lost.median + self.frames.median
        return self.lost.median / every if every else 0.0


class Rates(Object):
    def __init__(self, data: dict) -> None:
        super().__init__(data)
        self.rows = [Row(row.data) for row in self.measured("rows")]

    def loads(self) -> list[str]:
        return list(dict.fromkeys(row.load for row in self.rows))

    def rates(self) -> list[float]:
        return sorted({row.rate for row in self.rows})

    def ways(self) -> list[str]:
        """In the order of the rows."""
        return list(dict.fromkeys(row.way for row in self.rows))

    def of(self, load: str, way: str) -> list[Row]:
        return [row for row in self.rows if (row.load, row.way) == (load, way)]


def read(path: pathlib.Path) -> Rates:
    return Rates(results.read(path, "rates"))


def table(found: Rates) -> str:
    """A row for each load and rate, a column for each way."""
    rows = []
    for load in found.loads():
        for rate in found.rates():
            cells = {row.way: row for row in found.rows if (row.load, row.rate) == (load, rate)}
            if not cells:
                continue
            made = min(row.made_per_s.min for row in cells.values()) / rate
            rows.append((load, f"{rate:,.0f}", f"{rate * found.frame / 1e6:,.6g}",
                         *(_lost(cells.get(way)) for way in found.ways()), f"{made:.0%}".replace("%", " %")))
    return markdown(("machine", "frames/s", "MB/s", *found.ways(), "made"), rows)


def _lost(row: Row | None) -> str:
    if row is None:
        return ""
    if not row.lost.median:
        return "0"
    percent = row.share * 100
    return f"{row.lost.median:,.0f} ({'<0.01' if percent < 0.01 else f'{percent:.2f}'} %)"
