# SPDX-License-Identifier: MIT OR Apache-2.0
"""Results of `dmabuf-dio-bench cost`."""

import dataclasses
import pathlib

from . import results
from .results import Summary

MIB = 1 << 20
# In the order of a transfer; "load" is allocation and I/O in one call.
PHASES = ("allocation", "io", "load", "close")


@dataclasses.dataclass(frozen=True)
class Way:
    name: str
    copied: float
    zeroed: float
    # Why there are no figures
    reason: str | None
    # By phase and as "total", without phases that the way does not have
    figures: dict[str, Summary]


@dataclasses.dataclass(frozen=True)
class Size:
    bytes: int
    # "MiB" or "transfer"
    per: str
    reason: str | None
    ways: dict[str, Way]

    @property
    def name(self) -> str:
        return size_name(self.bytes)


@dataclasses.dataclass(frozen=True)
class Cost:
    unit: str
    kernel: str
    commit: str | None
    runs: int
    sizes: list[Size]

    def size(self, bytes_: int) -> Size:
        return next(size for size in self.sizes if size.bytes == bytes_)


def read(path: pathlib.Path) -> Cost:
    data = results.read(path, "cost")
    return Cost(unit=data["unit"], kernel=data["kernel"], commit=data.get("commit"), runs=data["runs"],
                sizes=[_size(size) for size in data.get("sizes", ())])


def _size(data: dict) -> Size:
    return Size(data["bytes"], data["per"], data.get("reason"),
                {way["name"]: _way(way) for way in data.get("ways", ())})


def _way(data: dict) -> Way:
    figures = {phase: found for phase in (*PHASES, "total")
               if (found := results.of_runs(data, phase))}
    return Way(data["name"], data["copied"], data["zeroed"], data.get("reason"), figures)


def size_name(bytes_: int) -> str:
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if bytes_ >= 1 << shift:
            return f"{bytes_ / (1 << shift):g} {unit}"
    return f"{bytes_} bytes"
