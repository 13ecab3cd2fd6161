# SPDX-License-Identifier: MIT OR Apache-2.0
"""Results of `dmabuf-dio-bench small`."""

import pathlib

from . import results
from .results import Object

# What tables of one column show: lent memory, and reads in flight
LENT = "io_uring, lent"
DEPTH = 32


class Line(Object):
    def __init__(self, data: dict) -> None:
        super().__init__(data)
        # By requests in flight
        self.points = {point.depth: point for point in self.measured("points")}

    @property
    def name(self) -> str:
        """The way and the memory; gather has only one kind of memory."""
        fio = ", fio" if self.by == "fio" else ""
        return self.way if self.way.startswith("gather") else f"{self.way}, {self.memory}{fio}"


class Small(Object):
    def __init__(self, data: dict) -> None:
        super().__init__(data)
        lines = (Line(line) for line in data.get("lines", ()))
        self.lines = [line for line in lines if line.points]

    def targets(self) -> list[str]:
        """In the order of the table."""
        return list(dict.fromkeys(line.target for line in self.lines))

    def point(self, target: str, name: str, depth: int) -> Object | None:
        found = (line for line in self.lines if (line.target, line.name) == (target, name))
        line = next(found, None)
        return line.points.get(depth) if line else None

    def per_read(self, target: str, name: str = LENT) -> float:
        """The cost of a read with DEPTH in flight, which the results must have."""
        return self.point(target, name, DEPTH).per_read.median


def read(path: pathlib.Path) -> Small:
    return Small(results.read(path, "small"))
