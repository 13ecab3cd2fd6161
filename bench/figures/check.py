# SPDX-License-Identifier: MIT OR Apache-2.0
"""Compares the cost of all ways with a baseline. Of several measurements, each of another boot, the best figure counts."""

import pathlib
import sys

from .results import MIB, Result, Row, read, size_name

# Thresholds, relative and absolute; a difference must exceed both. Per MiB: a run covers 64 MiB, and
# three additional interrupts or timer ticks of about 5,000 instructions each are 240. Per small transfer:
# whether the disk answers before the caller sleeps, which costs 5,000, depends on the host.
PART = 0.05
LEAST = {"MiB": 250.0, "transfer": 6000.0}
# Ways that transfer twice, so that the caller may sleep twice.
TWICE = ", again"


def compare(baseline: Result, *now: Result) -> tuple[list[tuple[Row, str]], list[str]]:
    """The figures of the baseline that are worse or missing, each with its row, and those that are better. New ones are ignored."""
    worse, better = [], []
    for row in baseline.measured:
        per = "MiB" if row.size >= MIB else "transfer"
        there = [other for each in now for other in each.rows if (other.size, other.way) == (row.size, row.way)]
        for phase, figure in row.figures.items():
            name, old = f"{row.way}, {size_name(row.size)}, {phase}: {figure.median:,.0f} before", figure.median
            medians = [other.figures[phase].median for other in there if phase in other.figures]
            if not medians:
                why = next((other.reason for other in there if other.reason), "not measured")
                worse.append((row, f"{name}, now missing: {why}"))
                continue
            change = min(medians) - old
            if abs(change) > max(PART * old, LEAST[per] * (2 if row.way.endswith(TWICE) else 1)):
                percent = f" ({change / old:+.1%})" if old > 0 else ""
                text = f"{name}, now {min(medians):,.0f}{percent} per {per}"
                worse.append((row, text)) if change > 0 else better.append(text)
    return worse, better


def judge(before: pathlib.Path, *files: pathlib.Path) -> tuple[bool, list[str]]:
    """Prints what is worse. Whether nothing is, and the options of `dmabuf-dio-bench cost` that measure it again."""
    baseline, *now = (read(path, "cost") for path in (before, *files))
    for path, each in zip(files, now):
        if baseline.unit != each.unit:
            print(f"{path} counts {each.unit}, the baseline {baseline.unit}: run it in a guest with vm/run --icount", file=sys.stderr)
            return False, []
    worse, better = compare(baseline, *now)
    for text in better:
        print(f"better: {text}")
    if better and len(now) == 1:
        print(f"The baseline can be renewed with: cp {files[0]} {before}")
    for _, text in worse:
        print(f"WORSE: {text}")
    count = sum(len(row.figures) for row in baseline.measured)
    print(f"{count} figures, {len(worse)} worse, {len(better)} better by more than {PART:.0%}")
    sizes, ways = (sorted({row.data[member] for row, _ in worse}) for member in ("size", "way"))
    return not worse and count > 0, [f"--sizes={','.join(map(str, sizes))}", *(f"--only={way}" for way in ways)] if worse else []
