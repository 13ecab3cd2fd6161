# SPDX-License-Identifier: MIT OR Apache-2.0
"""The files of bench/results."""

import dataclasses
import json
import pathlib
import statistics
from collections.abc import Iterable

from .compact import SCHEMA


@dataclasses.dataclass(frozen=True)
class Summary:
    """The values of all runs."""

    median: float
    min: float
    max: float


def summary(values: Iterable[float]) -> Summary | None:
    """None if there are no values."""
    found = list(values)
    return Summary(statistics.median(found), min(found), max(found)) if found else None


def of_runs(row: dict, name: str) -> Summary | None:
    """A figure of a row, or None if the row lacks it or has no runs."""
    return summary(run[name] for run in row.get("runs", ()) if name in run)


def read(path: pathlib.Path, bench: str) -> dict:
    """The result in a file, which must be of the given benchmark."""
    data = json.loads(path.read_text())
    if (data.get("bench"), data.get("schema")) != (bench, SCHEMA):
        raise ValueError(f"{path}: not of `dmabuf-dio-bench {bench}`, schema {SCHEMA}")
    return data
