# SPDX-License-Identifier: MIT OR Apache-2.0
"""The tables of instructions: for each way, what it costs in one result or in several."""

from collections.abc import Iterable, Sequence

from . import small
from .results import GIB, MIB, Result, Row, size_name
from .show import columns, markdown, number, numbers

SHOWN = 128 * MIB

READ, SLOT, LOAD, FLAG = "module: READ", "module: slot, 8 MiB x 4", "module: LOAD", "series: heap flag"
COPY, AGAIN = "series: copy_file_range, heap", "series: copy_file_range, heap, again"
MAPPED, RING = "heap: read() into the mapping", "memfd, faulted in: io_uring 1 MiB x 8"

# Rows of the summary and their names there; ours are bold.
SUMMARY = (
    ("system heap: buffered read into the mapping", MAPPED),
    ("memfd, faulted in and registered with io_uring, direct", RING),
    ("**module: READ into an attached buffer**", READ),
    ("**module: io_uring slot, 8 MiB x 4**", SLOT),
    ("**patch series: `copy_file_range` into a system-heap buffer**", COPY),
    ("**module: LOAD, which allocates too**", LOAD),
    ("**patch series: heap flag, which allocates too**", FLAG),
)
# Name, way, phase: what a buffer that exists costs, then everything from no buffer to a freed one
CLOCK = (
    ("`read()` into the mapping of a dma-buf", MAPPED, "io"),
    ("**module: READ**", READ, "io"),
    ("**patch series: `copy_file_range`**", COPY, "io"),
    ("new dma-buf, `read()` into its mapping", MAPPED, "total"),
    ("**new dma-buf, module: LOAD**", LOAD, "total"),
    ("**new dma-buf, patch series: heap flag**", FLAG, "total"),
    ("`read()` into `malloc()`", "malloc: read()", "total"),
    ("new memfd, faulted in, io_uring", RING, "total"),
    ("**library: private memory**", "library: private memory", "total"),
    ("**library: memfd**", "library: memfd", "total"),
)
GHZ = (1, 3)
IOMMU = (
    ("READ", READ),
    ("READ, 32 MiB at a time", "module: READ, 32 MiB at a time"),
    ("slot, 8 MiB x 4", SLOT),
    ("`copy_file_range`, first", COPY),
    ("`copy_file_range`, again", AGAIN),
    ("LOAD, which allocates", LOAD),
    ("registered memory, io_uring 1 MiB x 8", RING),
)
IOMMU_LETTER = (
    ("read of 128 MiB, per MiB", READ),
    ("io_uring, 8 MiB x 4, per MiB", SLOT),
    ("copy_file_range() again, per MiB", AGAIN),
    ("allocate and read at once, per MiB", LOAD),
)
COHERENCE = (
    ("READ", READ),
    ("slot, 8 MiB x 4", SLOT),
    ("`copy_file_range`", COPY),
    ("LOAD, which allocates", LOAD),
    ("heap flag, which allocates", FLAG),
    ("registered memory, io_uring 1 MiB x 8", RING),
    ("`read()` into the mapping of a dma-buf", MAPPED),
)
# And the limits for arm64; those of reads from a file system are relative to the raw device.
ARM64 = (
    ("READ, per MiB", READ, 6_500),
    ("io_uring slot, 8 MiB x 4, per MiB", SLOT, None),
    ("LOAD, allocation included, per MiB", LOAD, 9_000),
    ("`copy_file_range` into a system-heap buffer, per MiB", COPY, None),
    ("heap flag, allocation included, per MiB", FLAG, None),
)
ARM64_READS = {"raw": "a block device", "ext4": "ext4", "xfs": "XFS"}
MOST = 1.05
COPY_LETTER = (
    ("system heap, read() into the mapping", MAPPED),
    ("memfd, io_uring, registered, direct", RING),
    ("udmabuf, copy_file_range(), direct", "series: copy_file_range, udmabuf"),
    ("system heap, copy_file_range(), direct", COPY),
)
HEAP_LETTER = (
    ("allocate, read() into the mapping", MAPPED),
    ("udmabuf beside parallel direct reads", "udmabuf: parallel reads"),
    ("the same in huge pages, udmabuf last", "udmabuf: parallel reads, huge pages"),
    ("allocate, copy_file_range(), direct", COPY),
    ("heap flag, direct, both at once", FLAG),
)
INTO_MEMFD = "memfd, faulted in: O_DIRECT pread"
# Zeroing takes one move for eight bytes.
ZEROING = MIB / 8


def spent(found: Result, way: str, phase: str = "io", size: int = SHOWN) -> float:
    """The median of a phase; where allocation and I/O are one call, that is the I/O."""
    figures = found.row(size=size, way=way).figures
    return figures.get(phase, figures.get("load")).median


def summary(found: Result) -> str:
    return markdown(("way", "reading", "in all, from no buffer to a freed one"),
                    numbers((name, spent(found, way), spent(found, way, "total")) for name, way in SUMMARY))


def _cell(row: Row, *phases: str) -> str:
    """The first of these phases that the way has."""
    return next((number(row.figures[phase].median) for phase in phases if phase in row.figures), "")


def all_ways(found: Result, size: int = SHOWN) -> str:
    def cells(row: Row) -> list[str]:
        if row.reason:
            return [row.reason, "", "", "", "", ""]
        low, middle, high = map(number, (row.total.min, row.total.median, row.total.max))
        return ["+" if "load" in row.figures else _cell(row, "allocation"), _cell(row, "load", "io"), _cell(row, "close"),
                f"{middle} ({low} - {high})", str(row.copied), str(row.zeroed)]
    return markdown(("way", "allocation", "I/O", "close", "total: median (min - max)", "copied", "zeroed"),
                    [(row.way, *cells(row)) for row in found.rows if row.size == size])


def by_size(found: Result) -> str:
    """The total of each way, by size."""
    sizes = [size for size in found.each("size") if size >= MIB]
    return markdown(("way", *map(size_name, sizes)),
                    numbers((way, *(spent(found, way, "total", size) for size in sizes)) for way in found.each("way", size=sizes[0])))


def small_files(found: Result) -> str:
    sizes = [size for size in found.each("size") if size < MIB]
    rows = [(way, *(cell for size in sizes for row in [found.row(size=size, way=way)]
                    for cell in (_cell(row, "load", "io"), _cell(row, "total")))) for way in found.each("way", size=sizes[0])]
    return markdown(("way", *(f"{size_name(size)}: {what}" for size in sizes for what in ("I/O", "total"))), rows)


def clock(found: Result) -> str:
    """What CPUs of other clocks make of the instructions: one per cycle."""
    costs = [(name, spent(found, way, phase, GIB)) for name, way, phase in CLOCK]
    return markdown(("way", "instructions per MiB", *(f"{ghz} GHz: CPU seconds per GiB" for ghz in GHZ),
                     *(f"{ghz} GHz: one CPU is busy at" for ghz in GHZ)),
                    [(name, number(cost), *(f"{busy(cost, ghz):.3f}" for ghz in GHZ), *(f"{limit(cost, ghz):.3g} GB/s" for ghz in GHZ))
                     for name, cost in costs])


def busy(per_mib: float, ghz: float) -> float:
    """Seconds of CPU time per GiB."""
    return per_mib * 1024 / (ghz * 1e9)


def limit(per_mib: float, ghz: float) -> float:
    """GB/s at which one CPU has no time left."""
    return ghz * MIB / per_mib


def debian(booted: Result, without: Result) -> str:
    return markdown(("`init_on_alloc`", "LOAD, instructions per MiB"), numbers(
        (name, spent(found, LOAD, "total")) for name, found in (("1, as Debian boots it", booted), ("0", without))))


def of_first(head: str, names: Sequence[str], rows: Iterable[tuple[str, Sequence[float]]]) -> str:
    """A row has the first value, and the others with their ratio to it."""
    cells = [(name, number(first), *(f"{number(value)} ({value / first:.2f})" for value in others)) for name, (first, *others) in rows]
    return markdown((f"{head} (of no IOMMU)", *names), cells)


def iommu(names: Sequence[str], costs: Sequence[Result]) -> str:
    return of_first("instructions per MiB", names, ((name, [spent(found, way) for found in costs]) for name, way in IOMMU))


def iommu_small(names: Sequence[str], reads: Sequence[Result]) -> str:
    return of_first("instructions per read of 4 KiB", names, (
        (", ".join(key), [small.per_read(found, *key) for found in reads]) for key in small.points(reads[0])))


def iommu_letter(costs: Sequence[Result], reads: Sequence[Result]) -> str:
    rows = [(name, *(spent(found, way) for found in costs)) for name, way in IOMMU_LETTER]
    rows += [(f"random 4 KiB, {small.DEPTH} in flight, {target}", *(small.per_read(found, target) for found in reads))
             for target in ("raw", "ext4", "xfs")]
    return columns(("instructions", "no IOMMU", "strict", "this series"), numbers(rows))


def coherence(yes: Result, no: Result) -> str:
    """What it costs that caches do not see DMA."""
    costs = [(name, spent(yes, way), spent(no, way)) for name, way in COHERENCE]
    return markdown(("way", "coherent", "not coherent", "more"), numbers((name, one, other, other - one) for name, one, other in costs))


def arm64(costs: Sequence[Result], reads: Sequence[Result]) -> str:
    """Instructions on arm64 beside x86-64."""
    rows = []
    for name, way, most in ARM64:
        x86, arm = (spent(found, way) for found in costs)
        rows.append((name, f"{most:,}" if most else "", number(x86), number(arm), f"{arm / x86:.2f}"))
    for target, name in ARM64_READS.items():
        here = [small.per_read(found, target) for found in reads]
        of_raw = ["" if target == "raw" else f" ({value / small.per_read(found, 'raw'):.3f} of raw)" for value, found in zip(here, reads)]
        rows.append((f"4 KiB into lent pages, {name}", "" if target == "raw" else f"{MOST} of raw",
                     *(number(value) + ratio for value, ratio in zip(here, of_raw)), f"{here[1] / here[0]:.2f}"))
    return markdown(("instructions", "limit", "x86-64", "arm64", "of x86-64"), rows)


def memfd_pages(**results: Result) -> str:
    """What a read into a new memfd costs, by the size of its pages."""
    ways = [found.row(size=SHOWN, way=INTO_MEMFD) for found in results.values()]
    rows = [
        ("allocation: zeroing", *(way.zeroed * ZEROING for way in ways)),
        ("allocation: all else (page faults, page cache, LRU, page tables)", *(way.allocation.median - way.zeroed * ZEROING for way in ways)),
        ("I/O", *(way.io.median for way in ways)),
        ("close", *(way.close.median for way in ways)),
    ]
    return markdown(("", *results), numbers(rows))


def copy_letter(found: Result) -> str:
    rows = [(name, *(spent(found, way, phase) for phase in ("allocation", "io", "close"))) for name, way in COPY_LETTER]
    return columns(("instructions per MiB", "allocate", "read", "free"), numbers(rows))


def heap_letter(found: Result) -> str:
    """All that is done for a load, and to free the buffer."""
    rows = []
    for name, way in HEAP_LETTER:
        figures = found.row(size=GIB, way=way).figures
        loaded = sum(figures[phase].median for phase in ("allocation", "io", "load") if phase in figures)
        rows.append((name, loaded, figures["close"].median))
    return columns(("instructions per MiB", "load", "free"), numbers(rows))
