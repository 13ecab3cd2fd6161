# SPDX-License-Identifier: MIT OR Apache-2.0
"""The table of instructions on arm64 beside x86-64."""

import pathlib

from . import cost, small
from .markdown import markdown

SIZE = 128 * cost.MIB
READS = {"raw": "a block device", "ext4": "ext4", "xfs": "XFS"}
# What a row shows, the way, and the limit for arm64; "load" is allocation and I/O in one
WAYS = (
    ("READ", "module: READ", 6_500),
    ("io_uring slot, 8 MiB x 4", "module: slot, 8 MiB x 4", None),
    ("LOAD, allocation included", "module: LOAD", 9_000),
    ("`copy_file_range` into a system-heap buffer", "series: copy_file_range, heap", None),
    ("heap flag, allocation included", "series: heap flag", None),
)
# Of a read from the raw device
MOST = 1.05


def table(results: pathlib.Path) -> str:
    rows = []
    costs = [cost.read(results / f"cost-{name}7.3-series.json").size(SIZE) for name in ("", "arm64-")]
    for what, way, limit in WAYS:
        found = [each.spent(way) for each in costs]
        rows.append((f"{what}, per MiB", f"{limit:,}" if limit else "", *(f"{value:,.0f}" for value in found),
                     f"{found[1] / found[0]:.2f}"))
    reads = [small.read(results / f"small-{name}7.3-series.json") for name in ("cost-", "arm64-")]
    for target, name in READS.items():
        here = [each.per_read(target) for each in reads]
        of_raw = [value / each.per_read("raw") for value, each in zip(here, reads)]
        cells = [f"{value:,.0f}" if target == "raw" else f"{value:,.0f} ({ratio:.3f} of raw)"
                 for value, ratio in zip(here, of_raw)]
        rows.append((f"4 KiB into lent pages, {name}", "" if target == "raw" else f"{MOST} of raw", *cells,
                     f"{here[1] / here[0]:.2f}"))
    return markdown(("instructions", "limit", "x86-64", "arm64", "of x86-64"), rows)
