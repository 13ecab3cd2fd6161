# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tables in Markdown."""

from collections.abc import Iterable, Sequence


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |\n" for row in (head, *rows)]
    return "".join([lines[0], "|---|" + "---:|" * (len(head) - 1) + "\n", *lines[1:]])
