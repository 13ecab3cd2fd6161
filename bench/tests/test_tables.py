# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tables in documents and cover letters are generated from results."""

import pathlib
import unittest

from figures import cost, show, small, streams, tables, times
from figures.results import GIB, MIB
from tests.samples import COST, RATES, SMALL, STREAM, found, load, read, result, stream, way
from tests.samples import cost as costs


class Tables(unittest.TestCase):
    def lines_up(self, text: str) -> None:
        self.assertEqual(len({line.count("|") for line in text.splitlines()}), 1, text)

    def test_ways_are_shown_with_their_phases_or_reasons(self) -> None:
        result = found(COST)
        text, by_size = cost.all_ways(result), cost.by_size(result)
        for table in (text, by_size, cost.small_files(result)):
            self.lines_up(table)
        self.assertIn("| module: READ | 187,000 | 7,400 | 9,500 | 203,900 (203,900 - 203,900) |", text)
        self.assertIn("| module: LOAD | + | 8,000 | 900 |", text)
        self.assertIn("| series: heap flag | this kernel lacks it |", text)
        self.assertIn("| module: LOAD | 8,900 | 8,900 |\n", by_size)

    def test_small_reads_are_relative_to_the_raw_device(self) -> None:
        result = found(SMALL)
        text = small.by_depth(small.speed_of_base(result), result)
        self.assertIn("| ext4 | gather | 0.50 (0.50 - 0.50) |  |\n", text)
        self.assertNotIn("polled", text)
        self.assertIn("| ext4 | gather | 3,300 |", small.by_depth(small.cost, result))
        self.assertIn("| raw | io_uring, registered | 3,000 | 1.000 | 3,000 | 1.000 |", small.steps(result, result))
        self.assertIn("| ext4 | gather | 32 | 3,300 | 3,300 | +0.0 % |", small.switched(result, result))
        self.assertIn("| raw | io_uring, registered | 3,000 | 3,000 | +0 |\n", small.appended(result, result))

    def reads(self, *values: float) -> object:
        return found(result("small", *(read(target, "io_uring", memory, 32, value) for memory in ("lent", "registered")
                                       for target, value in zip(("raw", "ext4", "xfs"), values))))

    def test_columns_compare_results(self) -> None:
        names = {name for _, name in (*cost.IOMMU, *cost.COHERENCE)}
        few, many = (found(costs(*(way(cost.SHOWN, name, **{"load" if "LOAD" in name or "flag" in name else "io": value})
                                   for name in names))) for value in (5000.0, 48000.0))
        reads = self.reads(3000.0, 3300.0, 3150.0)
        self.assertIn("| READ | 5,000 | 5,000 (1.00) | 48,000 (9.60) |\n", cost.iommu(["a", "b", "c"], [few, few, many]))
        self.assertIn("| raw, io_uring, lent | 3,000 | 3,000 (1.00) |\n", cost.iommu_small(["a", "b"], [reads, reads]))
        self.assertIn("  read of 128 MiB, per MiB               5,000  48,000        5,000\n",
                      cost.iommu_letter([few, many, few], [reads] * 3))
        self.assertIn("| READ | 5,000 | 48,000 | 43,000 |\n", cost.coherence(few, many))
        text = cost.arm64([few, many], [reads, reads])
        self.lines_up(text)
        self.assertIn("| READ, per MiB | 6,500 | 5,000 | 48,000 | 9.60 |\n", text)
        self.assertIn("| 4 KiB into lent pages, ext4 | 1.05 of raw | 3,300 (1.100 of raw) |", text)

    def test_pages_of_memfds_are_split(self) -> None:
        data = costs(way(cost.SHOWN, cost.INTO_MEMFD, allocation=1_131_072.0, io=170_000.0, close=8_000.0) | {"zeroed": 1})
        text = cost.memfd_pages(one=found(data))
        self.assertIn("| allocation: zeroing | 131,072 |\n", text)
        self.assertIn("LRU, page tables) | 1,000,000 |\n", text)

    def test_streams_are_shown_by_block(self) -> None:
        self.assertIn("| dma-buf into a file, ext4 |  | 92,000 |\n", streams.table(streams.cost, (found(STREAM), "ext4")))
        data = result("stream", stream("nothing", "dma-buf", 16 * MIB, 1_500.0), stream("file", "udmabuf", 16 * MIB, 110_000.0),
                      stream("file", "dma-buf", 64 << 10, 99_000.0))
        self.assertIn("| 16 MiB | 1,500 |  |  | 110,000 |\n| 64 KiB |  |  | 99,000 |  |\n", streams.rings(found(data)))

    def test_lost_frames_have_their_share(self) -> None:
        text = streams.rates(found(RATES))
        self.assertIn("| idle | 1,000 | 0.008 | 0 | 0 | 100 % |\n", text)
        self.assertIn("| idle | 62,500,000 | 500 | 0 | 93,750,000 (50.00 %) | 100 % |\n", text)
        self.assertIn("| busy | 62,500,000 | 500 | 1,875 (<0.01 %) |  | 100 % |\n", text)

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


class Letters(unittest.TestCase):
    def test_columns_are_aligned_and_narrow(self) -> None:
        text = show.columns(("way", "a", "long head"), [("one", "1,000", "2"), ("another", "3", "")])
        self.assertEqual(text, "  way          a  long head\n"
                               "  one      1,000          2\n"
                               "  another      3\n")

    def test_copies_are_relative_to_read(self) -> None:
        rows = [{"size": MIB, "way": name, "allocation_ms": [200.0], "io_ms": [100.0 * place], "close_ms": [10.0], "io_cpu_ms": [20.0]}
                for place, (_, name) in enumerate(times.COPY, 2)]
        text = times.copy_letter(found(result("load", *rows)))
        self.assertIn("system heap, read() into the mapping       200  200     10   100%   20\n", text)
        self.assertIn("udmabuf, read() into the mapping           200  300     10    67%   20\n", text)

    def test_loads_missing_at_one_size_are_left_out(self) -> None:
        rows = [load(size, name, 100.0) for size in (GIB, 3 * GIB) for name in ("normal", "LOAD heap direct")]
        text = times.heap_letter(found(result("load", *rows, load(GIB, "udmabuf direct, parallel, huge pages", 1.0))))
        self.assertIn("allocate, read() into the mapping    100         50    100         50\n", text)
        self.assertNotIn("huge", text)

    def test_load_time_is_allocation_plus_reading(self) -> None:
        ways = [way(GIB, name, allocation=200000.0, io=1000.0, close=7.0) for _, name in cost.HEAP_LETTER[:-1]]
        text = cost.heap_letter(found(costs(*ways, way(GIB, cost.FLAG, load=8000.0, close=7.0))))
        self.assertIn("udmabuf beside parallel direct reads  201,000     7\n", text)
        self.assertIn("heap flag, direct, both at once         8,000     7\n", text)

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
