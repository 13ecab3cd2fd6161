# SPDX-License-Identifier: MIT OR Apache-2.0
"""Results of `dmabuf-dio-bench stream`."""

import dataclasses
import pathlib

from . import results
from .results import Summary


@dataclasses.dataclass(frozen=True)
class Row:
    to: str
    way: str
    block: int
    mib_per_s: Summary
    cpu_percent: Summary
    per_mib: Summary


@dataclasses.dataclass(frozen=True)
class Streams:
    kernel: str
    runs: int
    total: int
    rows: list[Row]

    def sinks(self) -> list[str]:
        """In the order of the table."""
        return list(dict.fromkeys(row.to for row in self.rows))

    def ways(self, to: str) -> dict[str, list[Row]]:
        """The rows for a sink, by way."""
        rows = [row for row in self.rows if row.to == to]
        return {way: [row for row in rows if row.way == way]
                for way in dict.fromkeys(row.way for row in rows)}


def read(path: pathlib.Path) -> Streams:
    data = results.read(path, "stream")
    rows = []
    for row in data.get("rows", ()):
        mib_per_s, cpu_percent, per_mib = (
            results.of_runs(row, name) for name in ("mib_per_s", "cpu_percent", "per_mib"))
        if mib_per_s and cpu_percent and per_mib:
            rows.append(Row(row["to"], row["way"], row["block"], mib_per_s, cpu_percent, per_mib))
    return Streams(data["kernel"], data["runs"], data["total"], rows)
