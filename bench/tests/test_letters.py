# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tables in cover letters are generated from results, as plain text."""

import copy
import pathlib
import tempfile
import unittest

from figures import cost, letters, load, small, table
from tests.samples import COST, LOAD, SMALL, keep, small_line, small_point, summary, way


class Letters(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def keep(self, printed: dict) -> pathlib.Path:
        path = self.folder / f"{printed['bench']}.json"
        keep(path, printed)
        return path

    def test_columns_are_aligned_and_narrow(self) -> None:
        text = letters.columns(("way", "a", "long head"), [("one", "1,000", "2"), ("another", "3", "")])
        self.assertEqual(text, "  way          a  long head\n"
                               "  one      1,000          2\n"
                               "  another      3\n")

    def test_small_reads_are_relative_to_the_raw_device(self) -> None:
        printed = SMALL | {"lines": [
            small_line(target, "io_uring", memory, [small_point(32, cost, 1000.0)])
            for memory in ("lent", "registered")
            for target, cost in (("ext4", 3300.0), ("xfs", 3600.0), ("raw", 3000.0))]}
        found = small.read(self.keep(printed))
        self.assertIn("lent pages, ext4         3,300   1.100    3,300   1.100\n",
                      letters.small_cost(found, found))
        self.assertIn("lent pages             3,000    3,000\n", letters.small_raw(found, found))

    def test_copies_are_relative_to_read(self) -> None:
        def row(name: str, io: float) -> dict:
            return {"name": name, "create_ms": summary(200.0), "io_ms": summary(io),
                    "close_ms": summary(10.0), "io_cpu_ms": summary(20.0)}
        rows = [row(name, 100.0 * place) for place, (name, _) in enumerate(letters.COPY_TIME, 2)]
        printed = {"schema": 1, "bench": "table", "kernel": "7.3.4", "runs": 3, "buffers": 32,
                   "buffer_size": 32 << 20, "parts": [{"direction": "read", "rows": rows}]}
        text = letters.copy_time(table.read(self.keep(printed)))
        self.assertIn("system heap, read() into the mapping       200  200     10   100%   20\n", text)
        self.assertIn("udmabuf, read() into the mapping           200  300     10    67%   20\n", text)

    def test_loads_missing_at_one_size_are_left_out(self) -> None:
        printed = copy.deepcopy(LOAD)
        size = printed["sizes"][0]
        size["bytes"] = 1 << 30
        size["rows"] = [{"name": name, "total_ms": summary(100.0), "total_cpu_ms": summary(50.0)}
                        for name in ("normal", "LOAD heap direct")]
        found = load.read(self.keep(printed))
        text = letters.heap_time(found)
        self.assertIn("allocate, read() into the mapping    100         50\n", text)
        self.assertNotIn("huge", text)

    def test_load_time_is_allocation_plus_reading(self) -> None:
        ways = [way(name, allocation=200000.0, io=1000.0, close=7.0) for name, _ in letters.HEAP_COST[:-1]]
        ways.append(way("series: heap flag", load=8000.0, close=7.0))
        sizes = [{"bytes": 1 << 30, "per": "MiB", "reason": None, "ways": ways}]
        text = letters.heap_cost(cost.read(self.keep(COST | {"sizes": sizes})))
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
