# SPDX-License-Identifier: MIT OR Apache-2.0
"""The tables of small reads."""

from collections.abc import Callable

from .results import Result, Row
from .show import columns, markdown, number, numbers

# What tables of one column show: lent memory, and reads in flight
LENT, REGISTERED = "io_uring, lent", "io_uring, registered"
DEPTH = 32
MEMORY = {"lent pages": LENT, "registered memory": REGISTERED}
# The reference for speeds: the disk without a file system
BASE = ("raw", REGISTERED)


def name(row: Row) -> str:
    """The way and the memory; gather has only one kind of memory."""
    fio = ", fio" if row.by == "fio" else ""
    return row.way if row.way.startswith("gather") else f"{row.way}, {row.memory}{fio}"


def points(found: Result, depth: int | None = None) -> dict[tuple[str, str], dict[int, Row]]:
    """By place and name, then by reads in flight."""
    lines: dict[tuple[str, str], dict[int, Row]] = {}
    for row in found.measured:
        if depth in (None, row.depth):
            lines.setdefault((row.target, name(row)), {})[row.depth] = row
    return lines


def per_read(found: Result, target: str, line: str = LENT) -> float:
    """The cost of a read with DEPTH in flight, which the results must have."""
    return points(found)[target, line][DEPTH].per_read.median


def by_depth(cell: Callable[[Row], str], *results: Result) -> str:
    """A row for each line, a column for each number of reads in flight."""
    lines = [(key, rows) for found in results for key, rows in points(found).items()]
    depths = dict.fromkeys(depth for _, rows in lines for depth in rows)
    rows = [(*key, *(cell(rows[depth]) if depth in rows else "" for depth in depths)) for key, rows in lines]
    return markdown(("on", "by, memory", *map(str, depths)), rows)


def cost(row: Row) -> str:
    return number(row.per_read.median)


def speed(row: Row) -> str:
    return "{} ({} - {})".format(*map(number, (row.iops.median, row.iops.min, row.iops.max)))


def speed_of_base(found: Result) -> Callable[[Row], str]:
    base = points(found).get(BASE, {})

    def cell(row: Row) -> str:
        if row.depth not in base:
            return ""
        median = base[row.depth].iops.median
        return "{:.2f} ({:.2f} - {:.2f})".format(*(value / median for value in (row.iops.median, row.iops.min, row.iops.max)))
    return cell


def _of_raw(found: Result, target: str, line: str) -> tuple[str, str]:
    """What a read costs, and relative to the raw device."""
    lines = points(found, DEPTH)
    if not {(target, line), ("raw", line)} <= lines.keys():
        return "", ""
    here, raw = per_read(found, target, line), per_read(found, "raw", line)
    return number(here), f"{here / raw:.3f}"


def steps(before: Result, after: Result, names: tuple[str, str] = ("7.3", "with the series")) -> str:
    """What a read costs in two cases, by default without and with the patch series."""
    rows = [(*key, *_of_raw(before, *key), *_of_raw(after, *key)) for key in points(before, DEPTH)]
    return markdown(("on", "by, memory", names[0], "of raw", names[1], "of raw"), rows)


def appended(before: Result, after: Result) -> str:
    """A read with its share of what is appended to the file meanwhile."""
    rows = []
    for key in points(before, DEPTH):
        was, now = (per_read(found, *key) for found in (before, after))
        rows.append((*key, number(was), number(now), f"{round(now) - round(was):+,}"))
    return markdown(("on", "by, memory", "7.3", "with the series", "difference"), rows)


def switched(off: Result, on: Result) -> str:
    """The effect of the short path on the cost of a read, Linux 6.12."""
    rows, others = [], points(on)
    for key, line in points(off).items():
        for depth, was in line.items():
            now = others.get(key, {}).get(depth)
            # The cost of polling depends on the disk and varies by a third from run to run.
            if now and not was.way.endswith("polled"):
                change = now.per_read.median / was.per_read.median - 1
                rows.append((*key, str(depth), cost(was), cost(now), f"{change * 100:+.1f} %"))
    return markdown(("on", "by, memory", "in flight", "off", "on", "change"), rows)


def letter_cost(*results: Result) -> str:
    rows = [(f"{memory}, {target}", *(cell for found in results for cell in _of_raw(found, target, line)))
            for memory, line in MEMORY.items() for target in ("ext4", "xfs", "raw")]
    return columns(("instructions per read", "7.3", "of raw", "patched", "of raw"), rows)


def letter_raw(*results: Result) -> str:
    rows = [(memory, *(per_read(found, "raw", line) for found in results)) for memory, line in MEMORY.items()]
    return columns(("instructions per read", "7.3", "patched"), numbers(rows))
