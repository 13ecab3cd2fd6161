# SPDX-License-Identifier: MIT OR Apache-2.0
"""Results of `dmabuf-dio-bench small`."""

import dataclasses
import pathlib

from . import results
from .results import Summary


# What tables of one column show: lent memory, and reads in flight
LENT = "io_uring, lent"
DEPTH = 32


@dataclasses.dataclass(frozen=True)
class Point:
    per_read: Summary
    iops: Summary


@dataclasses.dataclass(frozen=True)
class Line:
    target: str
    way: str
    memory: str
    by: str
    points: dict[int, Point]     # by requests in flight

    @property
    def name(self) -> str:
        """The way and the memory; gather has only one kind of memory."""
        fio = ", fio" if self.by == "fio" else ""
        return self.way if self.way.startswith("gather") else f"{self.way}, {self.memory}{fio}"


@dataclasses.dataclass(frozen=True)
class Small:
    kernel: str
    runs: int
    reads: int
    depths: list[int]
    lines: list[Line]

    def targets(self) -> list[str]:
        """In the order of the table."""
        return list(dict.fromkeys(line.target for line in self.lines))

    def names(self) -> list[str]:
        """The names of lines of all targets, in the order of the table."""
        return list(dict.fromkeys(line.name for line in self.lines))

    def point(self, target: str, name: str, depth: int) -> Point | None:
        found = (line for line in self.lines if (line.target, line.name) == (target, name))
        line = next(found, None)
        return line.points.get(depth) if line else None

    def per_read(self, target: str, name: str = LENT) -> float:
        """The cost of a read with DEPTH in flight, which the results must have."""
        return self.point(target, name, DEPTH).per_read.median


def read(path: pathlib.Path) -> Small:
    data = results.read(path, "small")
    lines = []
    for line in data.get("lines", ()):
        points = {point["depth"]: Point(per_read, iops) for point in line.get("points", ())
                  if (per_read := results.of_runs(point, "per_read"))
                  and (iops := results.of_runs(point, "iops"))}
        if points:
            lines.append(Line(line["target"], line["way"], line["memory"], line["by"], points))
    return Small(data["kernel"], data["runs"], data["reads"], data["depths"], lines)
