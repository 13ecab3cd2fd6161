# SPDX-License-Identifier: MIT OR Apache-2.0
"""The tables of `make bench-iommu`: what an IOMMU costs, with buffers mapped once or with each request."""

import pathlib
from collections.abc import Callable, Mapping

from . import cost, small
from .letters import columns, number
from .markdown import markdown

SHOWN = 128 * cost.MIB

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


Costs = Mapping[str, cost.Size]
Reads = Mapping[str, small.Small]


def _row(name: str, value: Callable[[str], float]) -> tuple[str, ...]:
    base, *others = (value(mode) for _, mode in COLUMNS)
    return (name, number(base), *(f"{number(found)} ({found / base:.2f})" for found in others))


def per_mib(costs: Costs) -> str:
    rows = [_row(name, lambda mode, way=way, phase=phase: costs[mode].spent(way, phase))
            for name, way, phase in WAYS]
    return markdown(("instructions per MiB (of no IOMMU)", *(head for head, _ in COLUMNS)), rows)


def per_read(reads: Reads) -> str:
    rows = [_row(f"{line.target}, {line.name}",
                 lambda mode, line=line: reads[mode].per_read(line.target, line.name))
            for line in reads[COLUMNS[0][1]].lines]
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


def letter(costs: Costs, reads: Reads) -> str:
    rows = [(name, *(number(costs[mode].spent(way, phase)) for mode in LETTER))
            for name, way, phase in LETTER_WAYS]
    rows += [(f"random 4 KiB, {small.DEPTH} in flight, {target}",
              *(number(reads[mode].per_read(target)) for mode in LETTER))
             for target in LETTER_READS]
    return columns(("instructions", "no IOMMU", "strict", "this series"), rows)


def all_of(results: pathlib.Path) -> dict[str, str]:
    costs = {mode: cost.read(results / f"iommu-{mode}.json").size(SHOWN) for _, mode in COLUMNS}
    reads = {mode: small.read(results / f"iommu-small-{mode}.json") for _, mode in COLUMNS}
    return {"iommu": per_mib(costs), "iommu_small": per_read(reads),
            "iommu_letter": letter(costs, reads)}
