# SPDX-License-Identifier: MIT OR Apache-2.0
"""What CPUs of other clocks make of the instructions that `dmabuf-dio-bench cost` counts: one per cycle."""

from . import cost
from .markdown import markdown

SHOWN = 1 << 30
GHZ = (1, 3)

# Name, row of the results, phase: what a buffer that exists costs, then everything from no buffer to a freed one
WAYS = (
    ("`read()` into the mapping of a dma-buf", "heap: read() into the mapping", "io"),
    ("**module: READ**", "module: READ", "io"),
    ("**patch series: `copy_file_range`**", "series: copy_file_range, heap", "io"),
    ("new dma-buf, `read()` into its mapping", "heap: read() into the mapping", "total"),
    ("**new dma-buf, module: LOAD**", "module: LOAD", "total"),
    ("**new dma-buf, patch series: heap flag**", "series: heap flag", "total"),
    ("`read()` into `malloc()`", "malloc: read()", "total"),
    ("new memfd, faulted in, io_uring", "memfd, faulted in: io_uring 1 MiB x 8", "total"),
    ("**library: private memory**", "library: private memory", "total"),
    ("**library: memfd**", "library: memfd", "total"),
)


def busy(per_mib: float, ghz: float) -> float:
    """Seconds of CPU time per GiB."""
    return per_mib * 1024 / (ghz * 1e9)


def limit(per_mib: float, ghz: float) -> float:
    """GB/s at which one CPU has no time left."""
    return ghz * cost.MIB / per_mib


def table(found: cost.Cost) -> str:
    head = ["way", "instructions per MiB", *(f"{ghz} GHz: CPU seconds per GiB" for ghz in GHZ),
            *(f"{ghz} GHz: one CPU is busy at" for ghz in GHZ)]
    rows = []
    for name, way, phase in WAYS:
        per_mib = found.size(SHOWN).spent(way, phase)
        rows.append((name, f"{per_mib:,.0f}", *(f"{busy(per_mib, ghz):.3f}" for ghz in GHZ),
                     *(f"{limit(per_mib, ghz):.3g} GB/s" for ghz in GHZ)))
    return markdown(head, rows)
