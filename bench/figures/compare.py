# SPDX-License-Identifier: MIT OR Apache-2.0
"""What `dmabuf-dio-bench compare` found."""

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
    # What the disk can do, or where nobody says, None
    ceiling: float | None
    ways: list[Way]


@dataclasses.dataclass(frozen=True)
class Compare:
    kernel: str
    machine: str
    # How large the tensors in the file are: many small ones, or few
    tensors: str
    # That load a file each at the same time
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
