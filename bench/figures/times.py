# SPDX-License-Identifier: MIT OR Apache-2.0
"""The tables of times in cover letters."""

from .results import GIB, Result
from .show import columns, numbers

COPY = (
    ("system heap, read() into the mapping", "normal"),
    ("udmabuf, read() into the mapping", "udmabuf buffer R/W"),
    ("memfd, read(), direct", "memfd direct R/W"),
    ("memfd with pages, read(), direct", "udmabuf direct"),
    ("udmabuf, copy_file_range(), direct", "udmabuf direct c_f_r"),
    ("system heap, copy_file_range(), direct", "dmabuf direct c_f_r"),
)
HEAP = (
    ("allocate, read() into the mapping", "normal"),
    ("udmabuf, then one direct read()", "udmabuf direct"),
    ("udmabuf beside parallel direct reads", "udmabuf direct, parallel"),
    ("the same in huge pages, udmabuf last", "udmabuf direct, parallel, huge pages"),
    ("heap flag, direct, memory first", "LOAD heap direct"),
    ("heap flag, direct, both at once", "LOAD heap direct, gather"),
)


def copy_letter(found: Result) -> str:
    base, rows = found.row(way=COPY[0][1]).io_ms.median, []
    for name, way in COPY:
        row = found.row(way=way)
        rows.append((name, row.allocation_ms.median, row.io_ms.median, row.close_ms.median, f"{base / row.io_ms.median:.0%}", row.io_cpu_ms.median))
    return columns(("milliseconds", "create", "I/O", "close", "speed", "CPU"), numbers(rows))


def heap_letter(found: Result) -> str:
    """Time and CPU time of a whole load."""
    sizes = [size for size in found.each("size") if size >= GIB]
    rows = [(name, *(each.median for row in found.where(way=way) if row.size in sizes for each in (row.total_ms, row.total_cpu_ms)))
            for name, way in HEAP]
    return columns(("milliseconds", *(f"{size // GIB} GiB{what}" for size in sizes for what in ("", " CPU"))),
                   numbers(row for row in rows if len(row) == 2 * len(sizes) + 1))
