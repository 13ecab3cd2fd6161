# SPDX-License-Identifier: MIT OR Apache-2.0
"""Fills the generated tables in the documents, between <!-- figures: NAME --> and <!-- end of figures -->.
With --check it only reports outdated ones."""

import argparse
import pathlib
import re
import sys

from . import cost, peaks, small, streams, times
from .results import Result, read

BENCH = pathlib.Path(__file__).resolve().parent.parent
DOCUMENTS = ("docs/notes/measuring.md", "docs/notes/performance.md", "docs/notes/small-reads.md", "docs/streams.md", "docs/models.md",
             *(f"kernel/{folder}/0000-cover-letter.patch"
               for folder in ("series/block", "series/copy-file-range", "series/small-reads",
                              "series/heap-flag", "series-mapped")))

# Heading, and the part of the files' names that says kernel and mode; figures are compared with the first.
IOMMU = {
    "no IOMMU": "7.3-mapped-off",
    "no IOMMU, `7.3-series`": "7.3-series-off",
    "strict, `7.3-series`": "7.3-series-strict",
    "**strict**": "7.3-mapped-strict",
    "lazy": "7.3-mapped-lazy",
    "passed through": "7.3-mapped-passthrough",
}
IOMMU_LETTER = ("no IOMMU", "strict, `7.3-series`", "**strict**")


def tables(results: pathlib.Path) -> dict[str, str]:
    def found(name: str, bench: str) -> Result:
        return read(results / f"{name}.json", bench)

    def costs(name: str) -> Result:
        return found(f"cost-{name}", "cost")

    def reads(name: str) -> Result:
        return found(f"small-{name}", "small")

    series, in_guest, small_73, small_series = costs("7.3-series"), reads("7.3-series"), reads("cost-7.3"), reads("cost-7.3-series")
    modes = {name: (found(f"iommu-{mode}", "cost"), found(f"iommu-small-{mode}", "small")) for name, mode in IOMMU.items()}
    return {
        "summary": cost.summary(series),
        "clock": cost.clock(series),
        "ways": cost.all_ways(series),
        "sizes": cost.by_size(series),
        "small": cost.small_files(series),
        "debian": cost.debian(costs("6.12"), costs("6.12-no-init")),
        "arm64": cost.arm64([series, costs("arm64-7.3-series")], [small_series, reads("arm64-7.3-series")]),
        "coherence": cost.coherence(costs("coherent-arm64"), costs("not-coherent-arm64")),
        "memfd_pages": cost.memfd_pages(**{"4 KiB pages": costs("memfd-7.3-series"), "huge pages": costs("memfd-huge-7.3-series")}),
        "iommu": cost.iommu(list(modes), [each for each, _ in modes.values()]),
        "iommu_small": cost.iommu_small(list(modes), [each for _, each in modes.values()]),
        "iommu_letter": cost.iommu_letter(*zip(*(modes[name] for name in IOMMU_LETTER))),
        "letter_copy_cost": cost.copy_letter(series),
        "letter_heap_cost": cost.heap_letter(costs("heap-flag-7.3-series")),
        "letter_copy_time": times.copy_letter(found("table-read-7.3-series", "load")),
        "letter_heap_time": times.heap_letter(found("load-7.3-series", "load")),
        "small_cost": small.by_depth(small.cost, small_series),
        "small_speed": small.by_depth(small.speed_of_base(in_guest), in_guest),
        "small_here": small.by_depth(small.speed, reads("here")),
        "small_steps": small.steps(small_73, small_series),
        "small_retpoline": small.steps(reads("retpoline-off"), reads("retpoline-on"), ("ordinary calls", "retpolines")),
        "small_appends": small.appended(reads("appends-7.3-plain"), reads("appends-7.3-series")),
        "small_gather": small.by_depth(small.cost, reads("gather-7.3-series"), reads("fio-7.3-series")),
        "small_6_12": small.switched(reads("cost-6.12-series-off"), reads("cost-6.12-series-on")),
        "letter_small_cost": small.letter_cost(small_73, small_series),
        "letter_small_raw": small.letter_raw(small_73, small_series),
        "stream_speed": streams.table(streams.speed, (found("stream-7.3-series", "stream"), "")),
        "stream_cost": streams.table(streams.cost, (found("stream-cost-7.3-series", "stream"), "ext4"),
                                     (found("stream-cost-xfs-7.3-series", "stream"), "XFS")),
        "iio_rings": streams.rings(found("stream-rings-7.3-series", "stream")),
        "rates": streams.rates(found("rates-7.3-series", "rates")),
        "consumers": peaks.table(found("peers-consumers", "peers-consumers")),
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
            print(f"{name}: its tables are not what bench/results says: make charts", file=sys.stderr)
            status = 1
        else:
            path.write_text(after)
            print(f"{name}: tables filled")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
