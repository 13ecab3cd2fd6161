# SPDX-License-Identifier: MIT OR Apache-2.0
"""The tables of `make bench-questions`: direct I/O into a memfd, udmabufs in IIO, DMA that is not coherent."""

import pathlib

from . import cost, stream
from .markdown import markdown

SHOWN = 128 * cost.MIB
PAGES = {"4 KiB pages": "cost-memfd-7.3-series.json", "huge pages": "cost-memfd-huge-7.3-series.json"}
INTO_MEMFD = "memfd, faulted in: O_DIRECT pread"
# Zeroing takes one move for eight bytes.
ZEROING = cost.MIB / 8
RINGS = {"dma-buf": "heap", "udmabuf": "udmabuf"}
SINKS = {"nothing": "nothing", "file": "a file"}
COHERENCE = ("cost-coherent-arm64.json", "cost-not-coherent-arm64.json")
# Name, row of the results, phase
WAYS = (
    ("READ", "module: READ", "io"),
    ("slot, 8 MiB x 4", "module: slot, 8 MiB x 4", "io"),
    ("`copy_file_range`", "series: copy_file_range, heap", "io"),
    ("LOAD, which allocates", "module: LOAD", "load"),
    ("heap flag, which allocates", "series: heap flag", "load"),
    ("registered memory, io_uring 1 MiB x 8", "memfd, faulted in: io_uring 1 MiB x 8", "io"),
    ("`read()` into the mapping of a dma-buf", "heap: read() into the mapping", "io"),
)


def all_of(results: pathlib.Path) -> dict[str, str]:
    there = {"memfd_pages": memfd_pages(results), "iio_rings": iio_rings(results)}
    if all((results / name).exists() for name in COHERENCE):
        there["coherence"] = coherence(results)
    return there


def memfd_pages(results: pathlib.Path) -> str:
    """What a read into a new memfd costs, by the size of its pages."""
    ways = [cost.read(results / name).size(SHOWN).ways[INTO_MEMFD] for name in PAGES.values()]
    phases = [{phase: way.figures[phase].median for phase in ("allocation", "io", "close")} for way in ways]
    rows = [
        ("allocation: zeroing", *(way.zeroed * ZEROING for way in ways)),
        ("allocation: all else (page faults, page cache, LRU, page tables)",
         *(phase["allocation"] - way.zeroed * ZEROING for phase, way in zip(phases, ways))),
        ("I/O", *(phase["io"] for phase in phases)),
        ("close", *(phase["close"] for phase in phases)),
    ]
    return markdown(("", *PAGES), [(name, *(f"{value:,.0f}" for value in values)) for name, *values in rows])


def iio_rings(results: pathlib.Path) -> str:
    """What a MiB of samples costs, by the memory of the ring."""
    found = stream.read(results / "stream-rings-7.3-series.json")
    cells = {(row.block, row.to, row.way): f"{row.per_mib.median:,.0f}" for row in found.rows}
    columns = [(to, way) for to in SINKS for way in RINGS]
    blocks = sorted({row.block for row in found.rows}, reverse=True)
    rows = [(cost.size_name(block), *(cells.get((block, *column), "") for column in columns)) for block in blocks]
    return markdown(("blocks", *(f"{SINKS[to]}: {RINGS[way]}" for to, way in columns)), rows)


def coherence(results: pathlib.Path) -> str:
    """What it costs that caches do not see DMA."""
    sizes = [cost.read(results / name).size(SHOWN) for name in COHERENCE]
    rows = []
    for name, way, phase in WAYS:
        yes, no = (size.spent(way, phase) for size in sizes)
        rows.append((name, f"{yes:,.0f}", f"{no:,.0f}", f"{no - yes:,.0f}"))
    return markdown(("way", "coherent", "not coherent", "more"), rows)
