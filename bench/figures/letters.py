# SPDX-License-Identifier: MIT OR Apache-2.0
"""The tables of the cover letters in kernel/series: plain text."""

import pathlib
from collections.abc import Iterable, Sequence

from . import cost, load, small, table
from .results import Object

GIB = 1 << 30

# Rows of a table and their names in the letter
COPY_COST = (
    ("heap: read() into the mapping", "system heap, read() into the mapping"),
    ("memfd, faulted in: io_uring 1 MiB x 8", "memfd, io_uring, registered, direct"),
    ("series: copy_file_range, udmabuf", "udmabuf, copy_file_range(), direct"),
    ("series: copy_file_range, heap", "system heap, copy_file_range(), direct"),
)
COPY_TIME = (
    ("dmabuf buffer R/W", "system heap, read() into the mapping"),
    ("udmabuf buffer R/W", "udmabuf, read() into the mapping"),
    ("memfd direct R/W", "memfd, read(), direct"),
    ("u+memfd direct R/W", "memfd with pages, read(), direct"),
    ("udmabuf direct c_f_r", "udmabuf, copy_file_range(), direct"),
    ("dmabuf direct c_f_r", "system heap, copy_file_range(), direct"),
)
HEAP = (
    ("normal", "allocate, read() into the mapping"),
    ("udmabuf direct", "udmabuf, then one direct read()"),
    ("udmabuf direct, parallel", "udmabuf beside parallel direct reads"),
    ("udmabuf direct, parallel, huge pages", "the same in huge pages, udmabuf last"),
    ("LOAD heap direct", "heap flag, direct, memory first"),
    ("LOAD heap direct, gather", "heap flag, direct, both at once"),
)
HEAP_COST = (
    ("heap: read() into the mapping", "allocate, read() into the mapping"),
    ("udmabuf: parallel reads", "udmabuf beside parallel direct reads"),
    ("udmabuf: parallel reads, huge pages", "the same in huge pages, udmabuf last"),
    ("series: copy_file_range, heap", "allocate, copy_file_range(), direct"),
    ("series: heap flag", "heap flag, direct, both at once"),
)
REGISTERED = "io_uring, registered"


def columns(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The first column is flush left, the others are flush right."""
    lines = [head, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = ""
    for line in lines:
        cells = [line[0].ljust(widths[0]),
                 *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:]))]
        text += f"  {'  '.join(cells)}".rstrip() + "\n"
    return text


def number(value: float) -> str:
    return f"{value:,.0f}"


def copy_cost(found: cost.Cost) -> str:
    size = found.size(128 * cost.MIB)
    rows = [(name, *(number(size.spent(way, phase)) for phase in ("allocation", "io", "close")))
            for way, name in COPY_COST]
    return columns(("instructions per MiB", "allocate", "read", "free"), rows)


def copy_time(found: dict[str, Object]) -> str:
    base = found[COPY_TIME[0][0]].io_ms.median
    rows = []
    for row, name in COPY_TIME:
        row = found[row]
        rows.append((name, number(row.create_ms.median), number(row.io_ms.median),
                     number(row.close_ms.median), f"{base / row.io_ms.median:.0%}",
                     number(row.io_cpu_ms.median)))
    return columns(("milliseconds", "create", "I/O", "close", "speed", "CPU"), rows)


def small_cost(before: small.Small, after: small.Small) -> str:
    """What a read costs on each target, and relative to the raw device."""
    rows = []
    for memory, line in (("lent pages", small.LENT), ("registered memory", REGISTERED)):
        for target in ("ext4", "xfs", "raw"):
            cells = []
            for found in (before, after):
                here, raw = (found.per_read(on, line) for on in (target, "raw"))
                cells += [number(here), f"{here / raw:.3f}"]
            rows.append((f"{memory}, {target}", *cells))
    return columns(("instructions per read", "7.3", "of raw", "patched", "of raw"), rows)


def small_raw(before: small.Small, after: small.Small) -> str:
    """Without a file system."""
    rows = [(name, *(number(found.per_read("raw", line)) for found in (before, after)))
            for line, name in ((small.LENT, "lent pages"), (REGISTERED, "registered memory"))]
    return columns(("instructions per read", "7.3", "patched"), rows)


def heap_time(found: load.Load) -> str:
    """Time and CPU time of a whole load."""
    sizes = [size for size in found.sizes if size.bytes >= GIB and size.total]
    head = ["milliseconds", *(f"{size.bytes // GIB} GiB{what}" for size in sizes for what in ("", " CPU"))]
    rows = [(name, *(number(value) for size in sizes for value in (size.total[row], size.cpu[row])))
            for row, name in HEAP if all(row in size.total for size in sizes)]
    return columns(head, rows)


def heap_cost(found: cost.Cost) -> str:
    """All that is done for a load, and to free the buffer."""
    rows = []
    for way, name in HEAP_COST:
        figures = found.size(GIB).ways[way].figures
        loaded = sum(figures[phase].median for phase in ("allocation", "io", "load") if phase in figures)
        rows.append((name, number(loaded), number(figures["close"].median)))
    return columns(("instructions per MiB", "load", "free"), rows)


def all_of(results: pathlib.Path) -> dict[str, str]:
    small_73, small_series = (small.read(results / f"small-cost-{name}.json")
                              for name in ("7.3", "7.3-series"))
    return {
        "letter_copy_cost": copy_cost(cost.read(results / "cost-7.3-series.json")),
        "letter_copy_time": copy_time(table.read(results / "table-read-7.3-series.json")),
        "letter_small_cost": small_cost(small_73, small_series),
        "letter_small_raw": small_raw(small_73, small_series),
        "letter_heap_time": heap_time(load.read(results / "load-7.3-series.json")),
        "letter_heap_cost": heap_cost(cost.read(results / "cost-heap-flag-7.3-series.json")),
    }
