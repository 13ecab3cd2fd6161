# SPDX-License-Identifier: MIT OR Apache-2.0
"""Peak memory of programs that load models, with safetensors and with dmabuf-dio, and its bounds."""

from collections.abc import Iterable

from .results import MIB, Result, Row
from .show import markdown, number

# Of what safetensors takes, with its pages.
OF_THEIRS = 1.05
# Beyond what is kept and the window, where a program lets go of each tensor before it uses the next.
BEYOND = 16 * MIB


def taken(row: Row, whose: str) -> float:
    """Bytes of the process at its peak, and of the files in the page cache."""
    parts = row.figures[f"{whose}_process"], row.figures[f"{whose}_cached"]
    return sum(part.median for part in parts)


def bound(row: Row) -> float:
    """The most that dmabuf-dio may take."""
    theirs = OF_THEIRS * taken(row, "safetensors")
    return min(theirs, row.kept_bytes + row.window_bytes + BEYOND) if row.one_by_one else theirs


def over(rows: Iterable[Row]) -> list[str]:
    """The rows with more memory than the bound, and those without figures that should have some."""
    found = []
    for row in rows:
        if row.figures and taken(row, "ours") > bound(row):
            found.append(f"{row.name}: {number(taken(row, 'ours') / MIB)} MiB, the bound is {number(bound(row) / MIB)} MiB")
        elif "failed" in row.data:
            found.append(f"{row.name}: {row.failed}")
    return found


def table(found: Result) -> str:
    """In MiB."""
    def cells(row: Row) -> list[str]:
        if not row.figures:
            return [row.name, "", str(row.reason), "", "", ""]
        parts = [f"{number(taken(row, whose) / MIB)} ({number(row.figures[f'{whose}_cached'].median / MIB)})" for whose in ("safetensors", "ours")]
        return [row.name, number(row.kept_bytes / MIB), *parts, f"{taken(row, 'ours') / taken(row, 'safetensors'):.2f}", number(bound(row) / MIB)]
    return markdown(("program, MiB (of them pages of files)", "kept", "safetensors", "dmabuf-dio", "ratio", "bound"), map(cells, found.rows))
