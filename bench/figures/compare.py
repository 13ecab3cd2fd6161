# SPDX-License-Identifier: MIT OR Apache-2.0
"""What `dmabuf-dio bench compare --json` found."""

import dataclasses
import pathlib

from . import results

OURS = "dmabuf-dio"


@dataclasses.dataclass(frozen=True)
class Way:
    name: str
    # GB/s: median, least and most
    speed: float
    min: float
    max: float

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
                   [_size(size) for size in data["sizes"]])


def _size(data: dict) -> Size:
    base = data["base"]
    ceiling = base["gb_per_s"] if base and base["is_ceiling"] else None
    ways = [Way(row["name"], *(row["gb_per_s"][key] for key in ("median", "min", "max")))
            for row in data["rows"] if row.get("gb_per_s") is not None]
    return Size(data["bytes"], data["runs"], ceiling, ways)
