# SPDX-License-Identifier: MIT OR Apache-2.0
"""Results of `dmabuf-dio-bench cost`."""

import pathlib

from . import results
from .results import Object

MIB = 1 << 20
# In the order of a transfer; "load" is allocation and I/O in one call.
PHASES = ("allocation", "io", "load", "close")


class Way(Object):
    """Its figures are by phase and "total", without phases that it does not have."""

    def __init__(self, data: dict) -> None:
        super().__init__(data)
        self.figures = {phase: self.figures[phase] for phase in (*PHASES, "total") if phase in self.figures}


class Size(Object):
    def __init__(self, data: dict) -> None:
        super().__init__(data)
        self.name = size_name(data["bytes"])
        self.ways = {way["name"]: Way(way) for way in data.get("ways", ())}

    def spent(self, way: str, phase: str = "io") -> float:
        """The median of a phase; where allocation and I/O are one call, that is the I/O."""
        figures = self.ways[way].figures
        return figures.get(phase, figures.get("load")).median


class Cost(Object):
    def __init__(self, data: dict) -> None:
        super().__init__(data)
        self.sizes = [Size(size) for size in data.get("sizes", ())]

    def size(self, bytes_: int) -> Size:
        return next(size for size in self.sizes if size.bytes == bytes_)


def read(path: pathlib.Path) -> Cost:
    return Cost(results.read(path, "cost"))


def size_name(bytes_: int) -> str:
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if bytes_ >= 1 << shift:
            return f"{bytes_ / (1 << shift):g} {unit}"
    return f"{bytes_} bytes"
