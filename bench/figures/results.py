# SPDX-License-Identifier: MIT OR Apache-2.0
"""The files of bench/results: facts, then rows. A row says what was measured and where, then has the values of all runs
for each figure, or why there are none."""

import dataclasses
import json
import pathlib
import statistics
from collections.abc import Iterable

MIB = 1 << 20
GIB = 1 << 30
# A row without figures has one of these, with the reason.
OUTCOMES = ("unavailable", "failed", "different")


@dataclasses.dataclass(frozen=True)
class Summary:
    """The values of all runs."""

    median: float
    min: float
    max: float


def summary(values: Iterable[float]) -> Summary:
    found = list(values)
    return Summary(statistics.median(found), min(found), max(found))


class Row:
    """Its members and figures are attributes."""

    def __init__(self, data: dict) -> None:
        self.data = data
        self.figures = {name: summary(value) for name, value in data.items() if isinstance(value, list)}
        self.runs = max((len(value) for value in data.values() if isinstance(value, list)), default=0)
        self.reason = next((data[name] for name in OUTCOMES if name in data), None)

    def __getattr__(self, name: str) -> object:
        for found in (self.__dict__.get("figures", {}), self.__dict__.get("data", {})):
            if name in found:
                return found[name]
        raise AttributeError(name)


class Result:
    """Its facts are attributes."""

    def __init__(self, data: dict) -> None:
        self.data = data
        self.rows = [Row(row) for row in data["rows"]]
        self.measured = [row for row in self.rows if row.figures]

    def __getattr__(self, name: str) -> object:
        if name in self.__dict__.get("data", {}):
            return self.data[name]
        raise AttributeError(name)

    def where(self, **members: object) -> list[Row]:
        """The rows with figures that have these members."""
        return [row for row in self.measured if all(row.data.get(name) == value for name, value in members.items())]

    def row(self, **members: object) -> Row:
        found = self.where(**members)
        if not found:
            raise LookupError(f"`{self.data['bench']}` has no figures for {members}")
        return found[0]

    def each(self, member: str, **members: object) -> list:
        """The values that a member has, in the order of the rows."""
        return list(dict.fromkeys(row.data[member] for row in self.where(**members)))


def read(path: pathlib.Path, bench: str) -> Result:
    """The result in a file, which must be of the given benchmark."""
    data = json.loads(path.read_text())
    if data.get("bench") != bench or "rows" not in data:
        raise ValueError(f"{path}: not rows of `dmabuf-dio-bench {bench}`")
    return Result(data)


def text(data: dict) -> str:
    """JSON with a line for each fact and each row."""
    facts = "".join(f"{json.dumps(name)}: {json.dumps(value)},\n " for name, value in data.items() if name != "rows")
    rows = ",".join(f"\n  {json.dumps(row, ensure_ascii=False)}" for row in data["rows"])
    return f'{{{facts}"rows": [{rows}]}}\n'


def keep(path: str | pathlib.Path, command: str, data: dict) -> None:
    """Stores what a benchmark has written in this form, with the command."""
    pathlib.Path(path).write_text(text({"bench": data.pop("bench"), "command": command, **data}))


def size_name(bytes_: int) -> str:
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if bytes_ >= 1 << shift:
            return f"{bytes_ / (1 << shift):g} {unit}"
    return f"{bytes_} bytes"
