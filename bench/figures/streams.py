# SPDX-License-Identifier: MIT OR Apache-2.0
"""The tables of streams: their cost, and frames lost."""

from collections.abc import Callable

from .results import Result, Row, size_name
from .show import markdown, number

SINKS = {"nothing": "into nothing", "file": "into a file", "usb": "into USB"}
LOADS = {"idle": "idle machine", "busy": "a busy thread for each CPU"}
# Sink and way, and how the head of a column calls them
RINGS = {("nothing", "dma-buf"): "nothing: heap", ("nothing", "udmabuf"): "nothing: udmabuf",
         ("file", "dma-buf"): "a file: heap", ("file", "udmabuf"): "a file: udmabuf"}


def table(cell: Callable[[Row], str], *runs: tuple[Result, str]) -> str:
    """A row for each way, a column for each block size. Each run has the file system's name, or ""."""
    blocks = sorted({row.block for found, _ in runs for row in found.measured})
    rows = []
    for found, file_system in runs:
        for to in found.each("to"):
            where = f", {file_system}" if file_system and to == "file" else ""
            for way in found.each("way", to=to):
                cells = {row.block: cell(row) for row in found.where(to=to, way=way)}
                rows.append((f"{way} {SINKS[to]}{where}", *(cells.get(block, "") for block in blocks)))
    return markdown(("way", *map(size_name, blocks)), rows)


def cost(row: Row) -> str:
    return number(row.per_mib.median)


def speed(row: Row) -> str:
    """Throughput and CPU load, as in the mailing-list thread."""
    mib = row.mib_per_s
    return f"{number(mib.median)} MiB/s ({number(mib.min)} - {number(mib.max)}), CPU {row.cpu_percent.median:.0f} %"


def rings(found: Result) -> str:
    """What a MiB of samples costs, by the memory of the ring."""
    cells = {(row.block, row.to, row.way): cost(row) for row in found.measured}
    rows = [(size_name(block), *(cells.get((block, *key), "") for key in RINGS)) for block in sorted(found.each("block"), reverse=True)]
    return markdown(("blocks", *RINGS.values()), rows)


def share(row: Row) -> float:
    """Lost frames, of all that the device has numbered."""
    every = row.lost.median + row.frames.median
    return row.lost.median / every if every else 0.0


def rates(found: Result) -> str:
    """A row for each load and rate, a column for each way."""
    rows, ways = [], found.each("way")
    for load in found.each("load"):
        for rate in sorted(found.each("rate", load=load)):
            cells = {row.way: row for row in found.where(load=load, rate=rate)}
            made = min(row.made_per_s.min for row in cells.values()) / rate
            rows.append((load, number(rate), f"{rate * found.frame / 1e6:,.6g}",
                         *(_lost(cells[way]) if way in cells else "" for way in ways), f"{made * 100:.0f} %"))
    return markdown(("machine", "frames/s", "MB/s", *ways, "made"), rows)


def _lost(row: Row) -> str:
    if not row.lost.median:
        return "0"
    percent = share(row) * 100
    return f"{number(row.lost.median)} ({'<0.01' if percent < 0.01 else f'{percent:.2f}'} %)"
