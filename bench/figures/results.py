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


class Object:
    """Part of a result: its members and, of a row, the figures of its runs, as attributes."""

    def __init__(self, data: dict) -> None:
        self.data = data
        runs = data.get("runs", ())
        names = dict.fromkeys(name for run in runs for name in run) if isinstance(runs, list) else ()
        # By name; empty if there is a reason instead
        self.figures = {name: summary(run[name] for run in runs if name in run) for name in names}

    def __getattr__(self, name: str) -> object:
        for found in (self.__dict__.get("figures", {}), self.__dict__.get("data", {})):
            if name in found:
                return found[name]
        raise AttributeError(name)

    @property
    def reason(self) -> str | None:
        """Why there are no figures."""
        return self.data.get("reason")

    def all(self, name: str) -> list["Object"]:
        return [Object(data) for data in self.data.get(name, ())]

    def measured(self, name: str) -> list["Object"]:
        """Those of a list that have figures."""
        return [row for row in self.all(name) if row.figures]


def read(path: pathlib.Path, bench: str) -> dict:
    """The result in a file, which must be of the given benchmark."""
    data = json.loads(path.read_text())
    if (data.get("bench"), data.get("schema")) != (bench, SCHEMA):
        raise ValueError(f"{path}: not of `dmabuf-dio-bench {bench}`, schema {SCHEMA}")
    return data
