# SPDX-License-Identifier: MIT OR Apache-2.0
"""Converts the output of `dmabuf-dio-bench ... --json` to the form of bench/results: one line per run,
without derived values. python3 -m figures.compact COMMAND... <PRINTED >KEPT"""

import json
import shlex
import sys

SCHEMA = 2
# Derived values: `allocation_ms` is the total minus the I/O, `hidden_ms` the difference of two totals,
# `base` of a table the first row that ran. The total of `cost` is kept: it and its parts are rounded
# to tenths separately, so the sum may be off by a tenth.
DERIVED = {
    "compare": ("gb_per_s", "cpu_seconds_per_gib", "ratio"),
    "load": ("allocation_ms", "hidden_ms", "percent"),
    "table": ("io_mb_per_s", "percent", "base"),
}
# Significant digits of a figure; further ones are floating-point noise.
DIGITS = 12


def compact(data: dict, command: str) -> dict:
    """The part of a command's output that is stored."""
    if data.get("schema") != 1:
        raise ValueError(f"schema {data.get('schema')} is not known here")
    kept = _object(data, DERIVED.get(data["bench"], ()))
    return {"schema": SCHEMA, "bench": kept.pop("bench"), "command": command,
            **{name: value for name, value in kept.items() if name != "schema"}}


def _object(data: dict, derived: tuple[str, ...]) -> dict:
    """Drops nulls and empty lists, and groups the values of all figures by run, as `runs`."""
    plain, figures = {}, {}
    for name, value in data.items():
        if name in derived or value is None or value == []:
            continue
        if isinstance(value, dict) and "values" in value:
            figures[name] = [_number(number) for number in value["values"]]
        elif isinstance(value, dict):
            plain[name] = _object(value, derived)
        elif _nested(value):
            plain[name] = [_object(member, derived) for member in value]
        else:
            plain[name] = _number(value)
    if figures:
        plain["runs"] = [dict(zip(figures, run)) for run in zip(*figures.values(), strict=True)]
    return plain


def _number(value: object) -> object:
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def _nested(value: object) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def text(kept: dict) -> str:
    """JSON with one line per top-level fact, then one line per object."""
    members = [f"{json.dumps(name)}: {_lines(value)}" for name, value in kept.items()]
    return "{" + ",\n ".join(members) + "}\n"


def _lines(value: object, indent: str = " ") -> str:
    if _nested(value):
        deeper = indent + " "
        return "[" + ",".join(f"\n{deeper}{_lines(member, deeper)}" for member in value) + "]"
    if isinstance(value, dict):
        members = sorted(value.items(), key=lambda member: _nested(member[1]))
        return "{" + ", ".join(f"{json.dumps(name)}: {_lines(member, indent)}"
                               for name, member in members) + "}"
    return json.dumps(value, ensure_ascii=False)


if __name__ == "__main__":
    sys.stdout.write(text(compact(json.load(sys.stdin), shlex.join(sys.argv[1:]))))
