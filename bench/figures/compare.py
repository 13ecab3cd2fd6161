# SPDX-License-Identifier: MIT OR Apache-2.0
"""Results of `dmabuf-dio-bench compare`."""

import pathlib

from . import results
from .results import Object

OURS = "dmabuf-dio"


class Way(Object):
    def __init__(self, row: Object, gigabytes: float) -> None:
        super().__init__(row.data)
        # GB/s
        self.speed = results.summary(gigabytes / run["seconds"] for run in row.data["runs"])
        self.is_ours = row.name.startswith(OURS)


class Size(Object):
    def __init__(self, data: dict, processes: int) -> None:
        super().__init__(data)
        self.ways = [Way(row, data["bytes"] * processes / 1e9) for row in self.measured("rows")]
        base = data.get("base")
        # The disk's maximum, or None if unknown
        self.ceiling = next((way.speed.median for way in self.ways
                             if base and base["is_ceiling"] and way.name == base["name"]), None)


class Compare(Object):
    def __init__(self, data: dict) -> None:
        super().__init__(data)
        self.machine = f"{data['cpus']} CPUs, {data['file_system']} on {data['device']}"
        self.sizes = [Size(size, data["processes"]) for size in data.get("sizes", ())]


def read(path: pathlib.Path) -> Compare:
    return Compare(results.read(path, "compare"))
