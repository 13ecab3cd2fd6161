# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tables in Markdown, and in plain text."""

from collections.abc import Iterable, Sequence
from typing import Any


def number(value: float) -> str:
    return f"{value:,.0f}"


def numbers(rows: Iterable[Sequence[Any]]) -> list[list[str]]:
    """Numbers as text, and texts."""
    return [[cell if isinstance(cell, str) else number(cell) for cell in row] for row in rows]


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |\n" for row in (head, *rows)]
    return "".join([lines[0], "|---|" + "---:|" * (len(head) - 1) + "\n", *lines[1:]])


def columns(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """For cover letters: the first column is flush left, the others are flush right."""
    lines = [head, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = ""
    for line in lines:
        cells = [line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:]))]
        text += f"  {'  '.join(cells)}".rstrip() + "\n"
    return text
