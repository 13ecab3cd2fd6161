# SPDX-License-Identifier: MIT OR Apache-2.0
"""Results of `dmabuf-dio-bench table`."""

import dataclasses
import pathlib

from . import results
from .results import Summary


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    create_ms: Summary
    close_ms: Summary
    io_ms: Summary
    io_cpu_ms: Summary


@dataclasses.dataclass(frozen=True)
class Table:
    kernel: str
    runs: int
    buffers: int
    buffer_bytes: int
    rows: dict[str, Row]     # by name


def read(path: pathlib.Path) -> Table:
    """One direction; rows without figures are left out."""
    data = results.read(path, "table")
    (part,) = data["parts"]
    rows = {row["name"]: _row(row) for row in part["rows"] if row.get("runs")}
    return Table(data["kernel"], data["runs"], data["buffers"], data["buffer_size"], rows)


def _row(row: dict) -> Row:
    figures = {name: found for name in ("create_ms", "close_ms", "io_ms", "io_cpu_ms")
               if (found := results.of_runs(row, name))}
    return Row(row["name"], **figures)
