# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tables in the documents are generated from results."""

import pathlib
import tempfile
import unittest

from figures import arm64, clock, cost, iommu, questions, rates, small, small_tables, tables
from tests.samples import COST, RATES, SMALL, STREAM, keep, small_line, small_point, stream_row, summary, way


class Tables(unittest.TestCase):
    def setUp(self) -> None:
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        keep(folder / "cost.json", COST)
        self.cost = cost.read(folder / "cost.json")

    def test_rows_have_as_many_cells_as_the_head(self) -> None:
        for table in (tables.all_ways(self.cost.sizes[2]), tables.by_size(self.cost),
                      tables.small_files(self.cost)):
            self.assertEqual(len({line.count("|") for line in table.splitlines()}), 1, table)
        text = tables.all_ways(self.cost.sizes[2])
        self.assertIn("| module: READ | 187,000 | 7,400 | 9,500 | 203,900 (203,900 - 203,900) |",
                      text)
        self.assertIn("| module: LOAD | + | 8,000 | 900 |", text)
        self.assertIn("| series: heap flag | this kernel lacks it |", text)
        self.assertIn("| module: LOAD | 8,900 | 8,900 |\n", tables.by_size(self.cost))

    def test_small_reads_table_is_filled(self) -> None:
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        keep(folder / "small.json", SMALL)
        found = small.read(folder / "small.json")
        text = small_tables.by_depth(found, small_tables.speed_of_base(found))
        self.assertIn("| ext4 | gather | 0.50 (0.50 - 0.50) |  |\n", text)
        self.assertNotIn("polled", text)
        self.assertIn("| ext4 | gather | 3,300 |", small_tables.by_depth(found, small_tables.cost))
        self.assertIn("| raw | io_uring, registered | 3,000 | 1.000 | 3,000 | 1.000 |",
                      small_tables.steps(found, found))
        self.assertIn("| ext4 | gather | 32 | 3,300 | 3,300 | +0.0 % |",
                      small_tables.switched(found, found))
        self.assertIn("| raw | io_uring, registered | 3,000 | 3,000 | +0 |\n",
                      small_tables.appended(found, found))

    def test_arm64_table_is_filled(self) -> None:
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        ways = [way(name, **({"load": 8000.0} if "allocation" in what else {"io": 5000.0}))
                for what, name, _ in arm64.WAYS]
        printed = COST | {"sizes": [{"bytes": arm64.SIZE, "per": "MiB", "reason": None, "ways": ways}]}
        keep(folder / "cost-7.3-series.json", printed)
        ways[0]["io"] = summary(6000.0)
        keep(folder / "cost-arm64-7.3-series.json", printed)
        lines = [small_line(target, "io_uring", "lent", [small_point(32, per_read, 1000.0)])
                 for target, per_read in (("raw", 3000.0), ("ext4", 3300.0), ("xfs", 3150.0))]
        for name in ("small-cost", "small-arm64"):
            keep(folder / f"{name}-7.3-series.json", SMALL | {"lines": lines})
        text = arm64.table(folder)
        self.assertIn("| READ, per MiB | 6,500 | 5,000 | 6,000 | 1.20 |\n", text)
        self.assertIn("| LOAD, allocation included, per MiB | 9,000 | 8,000 | 8,000 | 1.00 |\n", text)
        self.assertIn("| 4 KiB into lent pages, ext4 | 1.05 of raw | 3,300 (1.100 of raw) |", text)
        self.assertEqual(len({line.count("|") for line in text.splitlines()}), 1, text)

    def test_iommu_table_is_filled(self) -> None:
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        for _, mode in iommu.COLUMNS:
            strict = mode == "7.3-series-strict"
            ways = [way(name, **{phase: 48000.0 if strict else 5000.0}) for _, name, phase in iommu.WAYS]
            keep(folder / f"iommu-{mode}.json", COST | {"sizes": [
                {"bytes": iommu.SHOWN, "per": "MiB", "reason": None, "ways": ways}]})
            lines = [small_line(target, "io_uring", "lent",
                                [small_point(small.DEPTH, 4500.0 if strict else 3000.0, 1000.0)])
                     for target in iommu.LETTER_READS]
            keep(folder / f"iommu-small-{mode}.json", SMALL | {"lines": lines})
        found = iommu.all_of(folder)
        self.assertIn("| READ | 5,000 | 5,000 (1.00) | 48,000 (9.60) | 5,000 (1.00) |", found["iommu"])
        self.assertIn("| raw, io_uring, lent | 3,000 | 3,000 (1.00) | 4,500 (1.50) | 3,000 (1.00) |",
                      found["iommu_small"])
        self.assertIn("  read of 128 MiB, per MiB               5,000  48,000        5,000\n",
                      found["iommu_letter"])

    def test_questions_table_is_filled(self) -> None:
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

        def costs(name: str, ways: list[dict]) -> None:
            keep(folder / name, COST | {"sizes": [
                {"bytes": questions.SHOWN, "per": "MiB", "reason": None, "ways": ways}]})

        for name, allocation in zip(questions.PAGES.values(), (1_131_072.0, 139_072.0)):
            costs(name, [way(questions.INTO_MEMFD, allocation=allocation, io=170_000.0, close=8_000.0)
                         | {"zeroed": 1.0}])
        for name, more in zip(questions.COHERENCE, (0.0, 131_000.0)):
            costs(name, [way(what, **{phase: 5_000.0 + more}) for _, what, phase in questions.WAYS])
        keep(folder / "stream-rings-7.3-series.json", STREAM | {"rows": [
            stream_row("nothing", "dma-buf", 16 << 20, 1_500.0), stream_row("file", "udmabuf", 16 << 20, 110_000.0),
            stream_row("file", "dma-buf", 64 << 10, 99_000.0)]})
        found = questions.all_of(folder)
        self.assertIn("| allocation: zeroing | 131,072 | 131,072 |\n", found["memfd_pages"])
        self.assertIn("LRU, page tables) | 1,000,000 | 8,000 |\n", found["memfd_pages"])
        self.assertIn("| 16 MiB | 1,500 |  |  | 110,000 |\n| 64 KiB |  |  | 99,000 |  |\n", found["iio_rings"])
        self.assertIn("| READ | 5,000 | 136,000 | 131,000 |\n", found["coherence"])

    def test_rates_table_is_filled(self) -> None:
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        keep(folder / "rates.json", RATES)
        text = rates.table(rates.read(folder / "rates.json"))
        self.assertIn("| idle | 1,000 | 0.008 | 0 | 0 | 100 % |\n", text)
        self.assertIn("| idle | 62,500,000 | 500 | 0 | 93,750,000 (50.00 %) | 100 % |\n", text)
        self.assertIn("| busy | 62,500,000 | 500 | 1,875 (<0.01 %) |  | 100 % |\n", text)

    def test_clock_limit_scales_with_cpu_speed(self) -> None:
        self.assertAlmostEqual(clock.busy(1e6, 1), 1.024)
        self.assertAlmostEqual(clock.busy(1e6, 2), 0.512)
        # A GB has fewer MiB than a GiB.
        self.assertAlmostEqual(clock.limit(1e6, 1), 1.048576)
        self.assertAlmostEqual(clock.limit(1e6, 3), 3.145728)

    def test_regions_can_be_filled_twice(self) -> None:
        text = "a\n<!-- figures: one -->\nold\n<!-- end of figures -->\nb\n"
        filled = tables.fill(text, {"one": "| new |\n"})
        self.assertEqual(filled,
                         "a\n<!-- figures: one -->\n| new |\n<!-- end of figures -->\nb\n")
        self.assertEqual(tables.fill(filled, {"one": "| new |\n"}), filled)
        with self.assertRaises(KeyError):
            tables.fill(text, {})


if __name__ == "__main__":
    unittest.main()
