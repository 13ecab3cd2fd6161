# SPDX-License-Identifier: MIT OR Apache-2.0
"""Results with few rows."""

import json
import pathlib

from figures.results import Result as found  # noqa: F401

BENCH = pathlib.Path(__file__).resolve().parent.parent


def kept(name: str) -> dict:
    """What bench/results has."""
    return json.loads((BENCH / f"results/{name}.json").read_text())


def result(bench: str, *rows: dict, **facts: object) -> dict:
    return {"bench": bench, "kernel": "7.3.4", "cpus": 2, "runs": 1, **facts, "rows": list(rows)}


def cost(*rows: dict) -> dict:
    """A result of `cost`, with the totals."""
    def whole(row: dict) -> dict:
        figures = [value[0] for value in row.values() if isinstance(value, list)]
        return {"copied": 0, "zeroed": 0, **row, **({"total": [sum(figures)]} if figures else {})}
    return result("cost", *map(whole, rows), unit="instructions")
