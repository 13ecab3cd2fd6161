# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tables of results that bench/results does not have: with rows that have no figures, and with less columns. `bench/selftest`
compares the tables of the documents."""

import pathlib
import unittest

from figures import cost, peaks, show, small, streams, tables, times
from figures.results import GIB, MIB
from tests.samples import cost as costs
from tests.samples import found, result

COST = found(costs({"size": 4096, "way": "module: READ", "allocation": [9e3], "io": [9e3], "close": [9e3]},
                   {"size": cost.SHOWN, "way": "module: READ", "allocation": [187e3], "io": [7.4e3], "close": [9.5e3]},
                   {"size": cost.SHOWN, "way": "module: LOAD", "load": [8e3], "close": [900.0]},
                   {"size": cost.SHOWN, "way": "series: heap flag", "unavailable": "this kernel lacks it"}))
GATHER = {"target": "ext4", "way": "gather", "memory": "lent", "by": "us"}
RAW = {"target": "raw", "way": "io_uring", "memory": "registered", "by": "us", "iops": [2000.0]}
SMALL = found(result("small", {**GATHER, "depth": 32, "per_read": [3300.0], "iops": [1000.0]}, {**GATHER, "depth": 128, "failed": "EIO"},
                     {**GATHER, "way": "io_uring polled", "memory": "user", "depth": 32, "unavailable": "no"},
                     {**RAW, "depth": 32, "per_read": [3000.0]}, {**RAW, "depth": 128, "per_read": [2900.0]}))
STREAM = found(result("stream", {"to": "nothing", "way": "dma-buf", "block": 16 << 10, "per_mib": [1100.0]},
                      {"to": "file", "way": "dma-buf", "block": MIB, "per_mib": [92e3]},
                      {"to": "usb", "way": "dma-buf", "block": MIB, "unavailable": "no --usb FOLDER"}))
FAST = {"way": "dmabuf-dio", "rate": 62.5e6, "made_per_s": [62.5e6]}
RATES = found(result("rates", {**FAST, "load": "idle", "frames": [93.75e6], "lost": [93.75e6]},
                     {**FAST, "load": "busy", "frames": [187.5e6], "lost": [1875.0]},
                     {"load": "busy", "way": "iio_rwdev", "rate": 62.5e6, "failed": "EIO"}, frame=8))
PEAKS = found(result("peers-consumers", {"name": "a", "unavailable": "no torch"}))
MEMFD = found(costs({"size": cost.SHOWN, "way": cost.INTO_MEMFD, "zeroed": 1, "allocation": [1_131_072.0], "io": [170e3], "close": [8e3]}))
COPIES = found(result("load", *({"way": name, "allocation_ms": [200.0], "io_ms": [100.0 * place], "close_ms": [10.0], "io_cpu_ms": [20.0]}
                                for place, (_, name) in enumerate(times.COPY, 2))))
LOADS = found(result("load", *({"size": size, "way": name, "total_ms": [100.0], "total_cpu_ms": [50.0]} for size, name in (
    (GIB, "normal"), (3 * GIB, "normal"), (GIB, "udmabuf direct, parallel, huge pages")))))

SHOWN = (
    (cost.all_ways(COST), "| module: READ | 187,000 | 7,400 | 9,500 | 203,900 (203,900 - 203,900) | 0 | 0 |\n"
                          "| module: LOAD | + | 8,000 | 900 | 8,900 (8,900 - 8,900) | 0 | 0 |\n"
                          "| series: heap flag | this kernel lacks it |"),
    (cost.by_size(COST), "| module: LOAD | 8,900 |\n"),
    (cost.small_files(COST), "| module: READ | 9,000 | 27,000 |\n"),
    (cost.memfd_pages(one=MEMFD), "| allocation: zeroing | 131,072 |\n| allocation: all else (page faults, page cache, LRU, page tables) | 1,000,000 |\n"),
    (small.by_depth(small.speed_of_base(SMALL), SMALL), "| ext4 | gather | 0.50 (0.50 - 0.50) |  |\n"),
    (small.steps(SMALL, SMALL), "| raw | io_uring, registered | 3,000 | 1.000 | 3,000 | 1.000 |"),
    (small.switched(SMALL, SMALL), "| ext4 | gather | 32 | 3,300 | 3,300 | +0.0 % |\n| raw |"),
    (streams.table(streams.cost, (STREAM, "ext4")), "| dma-buf into a file, ext4 |  | 92,000 |\n"),
    (streams.rings(STREAM), "| 1 MiB |  |  | 92,000 |  |\n| 16 KiB | 1,100 |  |  |  |\n"),
    (streams.rates(RATES), "| idle | 62,500,000 | 500 | 93,750,000 (50.00 %) | 100 % |\n| busy | 62,500,000 | 500 | 1,875 (<0.01 %) | 100 % |\n"),
    (peaks.table(PEAKS), "| a |  | no torch |  |  |  |\n"),
    (times.copy_letter(COPIES), "udmabuf, read() into the mapping           200  300     10    67%   20\n"),
    # A row that is missing at one size is left out.
    (times.heap_letter(LOADS), "milliseconds                       1 GiB  1 GiB CPU  3 GiB  3 GiB CPU\n"
                               "  allocate, read() into the mapping    100         50    100         50\n"),
    (show.columns(("way", "a", "long head"), [("one", "1,000", "2"), ("another", "3", "")]),
     "  way          a  long head\n  one      1,000          2\n  another      3\n"),
)


class Tables(unittest.TestCase):
    def test_rows_are_shown(self) -> None:
        for text, wanted in SHOWN:
            self.assertIn(wanted, text)
            if text.startswith("|"):
                self.assertEqual(len({line.count("|") for line in text.splitlines()}), 1, text)

    def test_clock_limit_scales_with_cpu_speed(self) -> None:
        self.assertAlmostEqual(cost.busy(1e6, 2), 0.512)
        # A GB has fewer MiB than a GiB.
        self.assertAlmostEqual(cost.limit(1e6, 3), 3.145728)

    def test_regions_can_be_filled_twice(self) -> None:
        text = "a\n<!-- figures: one -->\nold\n<!-- end of figures -->\nb\n"
        filled = tables.fill(text, {"one": "| new |\n"})
        self.assertEqual(filled, "a\n<!-- figures: one -->\n| new |\n<!-- end of figures -->\nb\n")
        self.assertEqual(tables.fill(filled, {"one": "| new |\n"}), filled)
        with self.assertRaises(KeyError):
            tables.fill(text, {})

    def test_every_letter_is_filled_and_narrow(self) -> None:
        series = pathlib.Path(__file__).parents[2] / "kernel/series"
        for path in series.glob("*/0000-cover-letter.patch"):
            text = path.read_text()
            # The others are about faults.
            if path.parent.name in ("block", "copy-file-range", "heap-flag", "small-reads"):
                self.assertIn("<!-- figures: letter_", text, path)
            lines = text.partition("\n\n")[2].splitlines()
            self.assertLessEqual(max(map(len, lines)), 80, path)


if __name__ == "__main__":
    unittest.main()
