# SPDX-License-Identifier: MIT OR Apache-2.0
"""What `dmabuf-dio bench stream --json` found."""

import dataclasses
import pathlib

from . import results


@dataclasses.dataclass(frozen=True)
class Row:
    to: str
    way: str
    block: int
    mib_per_s: dict
    cpu_percent: dict
    per_mib: dict


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
        """The rows into a sink, by way."""
        rows = [row for row in self.rows if row.to == to]
        return {way: [row for row in rows if row.way == way]
                for way in dict.fromkeys(row.way for row in rows)}


def read(path: pathlib.Path) -> Streams:
    data = results.read(path, "stream")
    rows = [Row(row["to"], row["way"], row["block"], row["mib_per_s"], row["cpu_percent"],
                row["per_mib"]) for row in data["rows"] if row.get("per_mib")]
    return Streams(data["kernel"], data["runs"], data["total"], rows)
