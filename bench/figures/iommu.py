# SPDX-License-Identifier: MIT OR Apache-2.0
"""The tables of `make bench-iommu`: what an IOMMU costs, with buffers mapped once or with each request."""

import pathlib
from collections.abc import Callable

from . import cost, small
from .letters import columns, number
from .markdown import markdown

SHOWN = 128 * cost.MIB
DEPTH = 32

# Heading, and the part of the files' names that says kernel and mode; figures are compared with the first.
COLUMNS = (
    ("no IOMMU", "7.3-mapped-off"),
    ("no IOMMU, `7.3-series`", "7.3-series-off"),
    ("strict, `7.3-series`", "7.3-series-strict"),
    ("**strict**", "7.3-mapped-strict"),
    ("lazy", "7.3-mapped-lazy"),
    ("passed through", "7.3-mapped-passthrough"),
)

# Name, row of the results, phase
WAYS = (
    ("READ", "module: READ", "io"),
    ("READ, 32 MiB at a time", "module: READ, 32 MiB at a time", "io"),
    ("slot, 8 MiB x 4", "module: slot, 8 MiB x 4", "io"),
    ("`copy_file_range`, first", "series: copy_file_range, heap", "io"),
    ("`copy_file_range`, again", "series: copy_file_range, heap, again", "io"),
    ("LOAD, which allocates", "module: LOAD", "load"),
    ("registered memory, io_uring 1 MiB x 8", "memfd, faulted in: io_uring 1 MiB x 8", "io"),
)


def _row(name: str, value: Callable[[str], float]) -> tuple[str, ...]:
    base = value(COLUMNS[0][1])
    cells = (f"{base:,.0f}", *(f"{found:,.0f} ({found / base:.2f})"
                               for _, mode in COLUMNS[1:] if (found := value(mode))))
    return (name, *cells)


def per_mib(results: pathlib.Path) -> str:
    found = {mode: cost.read(results / f"iommu-{mode}.json").size(SHOWN) for _, mode in COLUMNS}
    rows = [_row(name, lambda mode, way=way, phase=phase: found[mode].ways[way].figures[phase].median)
            for name, way, phase in WAYS]
    return markdown(("instructions per MiB (of no IOMMU)", *(head for head, _ in COLUMNS)), rows)


def per_read(results: pathlib.Path) -> str:
    found = {mode: small.read(results / f"iommu-small-{mode}.json") for _, mode in COLUMNS}
    rows = []
    for line in found[COLUMNS[0][1]].lines:
        rows.append(_row(f"{line.target}, {line.name}", lambda mode, line=line: found[mode].point(
            line.target, line.name, DEPTH).per_read.median))
    return markdown(("instructions per read of 4 KiB (of no IOMMU)", *(head for head, _ in COLUMNS)), rows)


# Of the cover letter
LETTER = ("7.3-mapped-off", "7.3-series-strict", "7.3-mapped-strict")
LETTER_WAYS = (
    ("read of 128 MiB, per MiB", "module: READ", "io"),
    ("io_uring, 8 MiB x 4, per MiB", "module: slot, 8 MiB x 4", "io"),
    ("copy_file_range() again, per MiB", "series: copy_file_range, heap, again", "io"),
    ("allocate and read at once, per MiB", "module: LOAD", "load"),
)
LETTER_READS = ("raw", "ext4", "xfs")
LENT = "io_uring, lent"


def letter(results: pathlib.Path) -> str:
    whole = [cost.read(results / f"iommu-{mode}.json").size(SHOWN) for mode in LETTER]
    reads = [small.read(results / f"iommu-small-{mode}.json") for mode in LETTER]
    rows = [(name, *(number(found.ways[way].figures[phase].median) for found in whole))
            for name, way, phase in LETTER_WAYS]
    rows += [(f"random 4 KiB, {DEPTH} in flight, {target}",
              *(number(found.point(target, LENT, DEPTH).per_read.median) for found in reads))
             for target in LETTER_READS]
    return columns(("instructions", "no IOMMU", "strict", "this series"), rows)


def all_of(results: pathlib.Path) -> dict[str, str]:
    return {"iommu": per_mib(results), "iommu_small": per_read(results),
            "iommu_letter": letter(results)}
