# SPDX-License-Identifier: MIT OR Apache-2.0
"""Fills the generated tables in the documents, between <!-- figures: NAME --> and <!-- end of figures -->.
With --check it only reports outdated ones."""

import argparse
import pathlib
import re
import sys
from collections.abc import Callable

from . import arm64, clock, cost, iommu, letters, questions, rates, small_tables, stream
from .markdown import markdown
from .results import Object, Summary

BENCH = pathlib.Path(__file__).resolve().parent.parent
SERIES = "cost-7.3-series.json"
SHOWN = 128 * cost.MIB
DOCUMENTS = ("docs/notes/measuring.md", "docs/notes/performance.md", "docs/notes/small-reads.md", "docs/streams.md",
             *(f"kernel/{folder}/0000-cover-letter.patch"
               for folder in ("series/block", "series/copy-file-range", "series/small-reads",
                              "series/heap-flag", "series-mapped")))

# Rows of the summary and their names there; ours are bold.
SUMMARY = (
    ("heap: read() into the mapping", "system heap: buffered read into the mapping"),
    ("memfd, faulted in: io_uring 1 MiB x 8", "memfd, faulted in and registered with io_uring, direct"),
    ("module: READ", "**module: READ into an attached buffer**"),
    ("module: slot, 8 MiB x 4", "**module: io_uring slot, 8 MiB x 4**"),
    ("series: copy_file_range, heap", "**patch series: `copy_file_range` into a system-heap buffer**"),
    ("module: LOAD", "**module: LOAD, which allocates too**"),
    ("series: heap flag", "**patch series: heap flag, which allocates too**"),
)


def number(figure: Summary | None) -> str:
    return "" if figure is None else f"{figure.median:,.0f}"


def summary(found: cost.Cost) -> str:
    rows = []
    for way, name in SUMMARY:
        figures = found.size(SHOWN).ways[way].figures
        rows.append((name, number(figures.get("io", figures.get("load"))),
                     number(figures.get("total"))))
    return markdown(("way", "reading", "in all, from no buffer to a freed one"), rows)


def all_ways(size: cost.Size) -> str:
    head = ("way", "allocation", "I/O", "close", "total: median (min - max)", "copied", "zeroed")
    rows = []
    for way in size.ways.values():
        if not way.figures:
            rows.append((way.name, way.reason or "", "", "", "", "", ""))
            continue
        figure, total = way.figures.get, way.figures["total"]
        in_one = figure("load") is not None
        rows.append((way.name, "+" if in_one else number(figure("allocation")),
                     number(figure("load" if in_one else "io")), number(figure("close")),
                     f"{total.median:,.0f} ({total.min:,.0f} - {total.max:,.0f})",
                     f"{way.copied:.0f}", f"{way.zeroed:.0f}"))
    return markdown(head, rows)


def by_size(found: cost.Cost) -> str:
    """The total of each way, by size."""
    sizes = [size for size in found.sizes if size.per == "MiB" and not size.reason]
    head = ["way", *(size.name for size in sizes)]
    rows = [[name, *(number(size.ways[name].figures.get("total")) for size in sizes)]
            for name, way in sizes[0].ways.items() if way.figures]
    return markdown(head, rows)


def small_files(found: cost.Cost) -> str:
    sizes = [size for size in found.sizes if size.per == "transfer" and not size.reason]
    head = ["way", *(f"{size.name}: {what}" for size in sizes for what in ("I/O", "total"))]
    rows = []
    for name, way in sizes[0].ways.items():
        if way.figures:
            figures = [size.ways[name].figures for size in sizes]
            rows.append([name, *(number(value) for figure in figures
                                 for value in (figure.get("load", figure.get("io")),
                                               figure.get("total")))])
    return markdown(head, rows)


SINKS = {"nothing": "into nothing", "file": "into a file", "usb": "into USB"}


def stream_table(cell: Callable[[Object], str], *runs: tuple[stream.Streams, str]) -> str:
    """A row for each way, a column for each block size. Each run has the file system's name, or ""."""
    blocks = sorted({row.block for found, _ in runs for row in found.rows})
    rows = []
    for found, file_system in runs:
        for to in found.sinks():
            where = f", {file_system}" if file_system and to == "file" else ""
            for way, of_way in found.ways(to).items():
                cells = {row.block: cell(row) for row in of_way}
                rows.append((f"{way} {SINKS[to]}{where}",
                             *(cells.get(block, "") for block in blocks)))
    return markdown(("way", *map(cost.size_name, blocks)), rows)


def speed(row: Object) -> str:
    """Throughput and CPU load, as in the mailing-list thread."""
    mib = row.mib_per_s
    return (f"{mib.median:,.0f} MiB/s ({mib.min:,.0f} - {mib.max:,.0f}), "
            f"CPU {row.cpu_percent.median:.0f} %")


def tables(results: pathlib.Path) -> dict[str, str]:
    found = cost.read(results / SERIES)
    without = cost.read(results / "cost-6.12-no-init.json")
    debian = cost.read(results / "cost-6.12.json")
    load = [number(there.size(SHOWN).ways["module: LOAD"].figures.get("total"))
            for there in (debian, without)]
    return {
        "stream_speed": stream_table(speed, (stream.read(results / "stream-7.3-series.json"), "")),
        "stream_cost": stream_table(
            lambda row: f"{row.per_mib.median:,.0f}",
            *((stream.read(path), name) for path, name in
              ((results / "stream-cost-7.3-series.json", "ext4"),
               (results / "stream-cost-xfs-7.3-series.json", "XFS")) if path.exists())),
        "rates": rates.table(rates.read(results / "rates-7.3-series.json")),
        "summary": summary(found),
        "clock": clock.table(found),
        "arm64": arm64.table(results),
        "ways": all_ways(found.size(SHOWN)),
        "sizes": by_size(found),
        "small": small_files(found),
        **small_tables.all_of(results),
        **letters.all_of(results),
        **iommu.all_of(results),
        **questions.all_of(results),
        "debian": markdown(("`init_on_alloc`", "LOAD, instructions per MiB"),
                           [("1, as Debian boots it", load[0]), ("0", load[1])]),
    }


def fill(text: str, content: dict[str, str]) -> str:
    """The text with all regions filled; an unknown name is an error."""
    def region(match: re.Match[str]) -> str:
        return f"<!-- figures: {match[1]} -->\n{content[match[1]]}<!-- end of figures -->"
    return re.sub(r"<!-- figures: (\w+) -->\n.*?<!-- end of figures -->", region, text, flags=re.S)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python3 -m figures.tables", description=__doc__)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args(arguments)
    content, status = tables(BENCH / "results"), 0
    for name in DOCUMENTS:
        path = BENCH.parent / name
        before = path.read_text()
        after = fill(before, content)
        if before == after:
            continue
        if args.check:
            print(f"{name}: its tables are not what bench/results says: make charts",
                  file=sys.stderr)
            status = 1
        else:
            path.write_text(after)
            print(f"{name}: tables filled")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
