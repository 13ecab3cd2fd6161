# SPDX-License-Identifier: MIT OR Apache-2.0
"""The tables of small reads."""

import pathlib
from collections.abc import Callable

from .markdown import markdown
from .results import Object
from .small import DEPTH, Small, read

# The reference for speeds: the disk without a file system
BASE = ("raw", "io_uring, registered")


def by_depth(found: Small, cell: Callable[[Object, int], str]) -> str:
    """A row for each line, a column for each number of reads in flight."""
    rows = []
    for line in found.lines:
        points = ((line.points.get(depth), depth) for depth in found.depths)
        cells = [cell(point, depth) if point else "" for point, depth in points]
        rows.append((line.target, line.name, *cells))
    return markdown(("on", "by, memory", *map(str, found.depths)), rows)


def cost(point: Object, _depth: int) -> str:
    return f"{point.per_read.median:,.0f}"


def speed(point: Object, _depth: int) -> str:
    iops = point.iops
    return f"{iops.median:,.0f} ({iops.min:,.0f} - {iops.max:,.0f})"


def speed_of_base(found: Small) -> Callable[[Object, int], str]:
    def cell(point: Object, depth: int) -> str:
        base = found.point(*BASE, depth)
        if not base:
            return ""
        parts = [value / base.iops.median
                 for value in (point.iops.median, point.iops.min, point.iops.max)]
        return "{:.2f} ({:.2f} - {:.2f})".format(*parts)
    return cell


def steps(before: Small, after: Small, names: tuple[str, str] = ("7.3", "with the series")) -> str:
    """What a read costs in two cases, by default without and with the patch series."""
    rows = []
    for line in before.lines:
        cells = []
        for found in (before, after):
            here, raw = (found.point(target, line.name, DEPTH) for target in (line.target, "raw"))
            if here and raw:
                ratio = here.per_read.median / raw.per_read.median
                cells += [cost(here, DEPTH), f"{ratio:.3f}"]
        rows.append((line.target, line.name, *cells))
    return markdown(("on", "by, memory", names[0], "of raw", names[1], "of raw"), rows)


def appended(before: Small, after: Small) -> str:
    """A read with its share of what is appended to the file meanwhile."""
    rows = []
    for line in (line for line in before.lines if DEPTH in line.points):
        was, now = (found.per_read(line.target, line.name) for found in (before, after))
        rows.append((line.target, line.name, f"{was:,.0f}", f"{now:,.0f}", f"{round(now) - round(was):+,}"))
    return markdown(("on", "by, memory", "7.3", "with the series", "difference"), rows)


def switched(off: Small, on: Small) -> str:
    """The effect of the short path on the cost of a read, Linux 6.12."""
    rows = []
    # The cost of polling depends on the disk and varies by a third from run to run.
    for line in (line for line in off.lines if not line.way.endswith("polled")):
        for depth, was in line.points.items():
            now = on.point(line.target, line.name, depth)
            if now:
                change = now.per_read.median / was.per_read.median - 1
                rows.append((line.target, line.name, str(depth), cost(was, depth),
                             cost(now, depth), f"{change * 100:+.1f} %"))
    return markdown(("on", "by, memory", "in flight", "off", "on", "change"), rows)


def all_of(results: pathlib.Path) -> dict[str, str]:
    def found(name: str) -> Small:
        return read(results / f"small-{name}.json")
    guest, series, gather = (found(f"{what}7.3-series") for what in ("", "cost-", "gather-"))
    beside = Small(gather.data | {"lines": gather.data["lines"] + found("fio-7.3-series").data["lines"]})
    return {
        "small_cost": by_depth(series, cost),
        "small_speed": by_depth(guest, speed_of_base(guest)),
        "small_here": by_depth(found("here"), speed),
        "small_steps": steps(found("cost-7.3"), series),
        "small_retpoline": steps(found("retpoline-off"), found("retpoline-on"), ("ordinary calls", "retpolines")),
        "small_appends": appended(found("appends-7.3-plain"), found("appends-7.3-series")),
        "small_gather": by_depth(beside, cost),
        "small_6_12": switched(found("cost-6.12-series-off"), found("cost-6.12-series-on")),
    }
