# SPDX-License-Identifier: MIT OR Apache-2.0
"""Results of `dmabuf-dio-bench compare`."""

import dataclasses
import pathlib

from . import results
from .results import Summary

OURS = "dmabuf-dio"


@dataclasses.dataclass(frozen=True)
class Way:
    name: str
    # GB/s
    speed: Summary

    @property
    def is_ours(self) -> bool:
        return self.name.startswith(OURS)


@dataclasses.dataclass(frozen=True)
class Size:
    bytes: int
    runs: int
    # The disk's maximum, or None if unknown
    ceiling: float | None
    ways: list[Way]


@dataclasses.dataclass(frozen=True)
class Compare:
    kernel: str
    machine: str
    # The tensors in the file: many small ones, or few
    tensors: str
    # Processes that load at the same time, each its own file
    processes: int
    sizes: list[Size]


def read(path: pathlib.Path) -> Compare:
    data = results.read(path, "compare")
    machine = f"{data['cpus']} CPUs, {data['file_system']} on {data['device']}"
    return Compare(data["kernel"], machine, data["tensors"], data["processes"],
                   [_size(size, data["processes"]) for size in data.get("sizes", ())])


def _size(data: dict, processes: int) -> Size:
    gigabytes = data["bytes"] * processes / 1e9
    ways = [Way(row["name"], speed) for row in data.get("rows", ())
            if (speed := results.summary(gigabytes / run["seconds"] for run in row.get("runs", ())))]
    base = data.get("base")
    ceiling = next((way.speed.median for way in ways
                    if base and base["is_ceiling"] and way.name == base["name"]), None)
    return Size(data["bytes"], data["runs"], ceiling, ways)
