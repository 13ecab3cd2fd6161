# SPDX-License-Identifier: MIT OR Apache-2.0
"""Results of `dmabuf-dio-bench stream`."""

import pathlib

from . import results
from .results import Object


class Streams(Object):
    def __init__(self, data: dict) -> None:
        super().__init__(data)
        self.rows = self.measured("rows")

    def sinks(self) -> list[str]:
        """In the order of the table."""
        return list(dict.fromkeys(row.to for row in self.rows))

    def ways(self, to: str) -> dict[str, list[Object]]:
        """The rows for a sink, by way."""
        rows = [row for row in self.rows if row.to == to]
        return {way: [row for row in rows if row.way == way]
                for way in dict.fromkeys(row.way for row in rows)}


def read(path: pathlib.Path) -> Streams:
    return Streams(results.read(path, "stream"))
