# SPDX-License-Identifier: MIT OR Apache-2.0
"""The check of costs fails when it should."""

import contextlib
import copy
import io
import json
import pathlib
import tempfile
import unittest

from figures import check
from figures.results import MIB
from tests.samples import LOAD, cost, way

BASELINE = cost(way(4096, "module: READ", allocation=9000.0, io=9000.0, close=9000.0),
                way(128 * MIB, "module: LOAD", load=8000.0, close=900.0),
                {"size": 128 * MIB, "way": "absent", "unavailable": "this kernel lacks it"})


class Check(unittest.TestCase):
    def check(self, *now: dict, baseline: dict = BASELINE) -> tuple[bool, str]:
        with tempfile.TemporaryDirectory() as folder:
            paths = [pathlib.Path(folder) / f"{number}" for number in range(len(now) + 1)]
            for path, data in zip(paths, (baseline, *now)):
                path.write_text(json.dumps(data))
            with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
                good, self.again = check.judge(*paths)
        return good, out.getvalue()

    def setUp(self) -> None:
        self.now = copy.deepcopy(BASELINE)
        self.small, self.load, _ = self.now["rows"]

    def test_equal_figures_pass(self) -> None:
        self.assertEqual(self.check(self.now), (True, "7 figures, 0 worse, 0 better by more than 5%\n"))

    def test_worse_figure_fails_and_is_named(self) -> None:
        self.load["load"] = [8401.0]
        good, text = self.check(self.now)
        self.assertFalse(good)
        self.assertIn("WORSE: module: LOAD, 128 MiB, load: 8,000 before, now 8,401 (+5.0%) per MiB", text)
        self.assertIn("7 figures, 1 worse", text)

    def test_small_differences_pass(self) -> None:
        self.load["load"] = [8399.0]
        # More than 5 %, but too few instructions
        self.load["close"] = [1149.0]
        self.small["io"] = [14999.0]
        self.assertTrue(self.check(self.now)[0])
        self.load["close"] = [1151.0]
        self.assertFalse(self.check(self.now)[0])

    def test_worse_figures_are_measured_again(self) -> None:
        self.load["load"] = [8401.0]
        self.assertFalse(self.check(self.now)[0])
        self.assertEqual(self.again, ["--sizes=134217728", "--only=module: LOAD"])
        second = cost(copy.deepcopy(self.load))
        self.assertFalse(self.check(self.now, second)[0])
        second["rows"][0]["load"] = [8001.0]
        self.assertTrue(self.check(self.now, second)[0])

    def test_way_that_transfers_twice_may_sleep_twice(self) -> None:
        for name, grown, good in (("module: READ", 7000.0, False), ("heap, again", 7000.0, True), ("heap, again", 13000.0, False)):
            before, after = (cost(way(4096, name, io=9000.0 + more)) for more in (0.0, grown))
            self.assertEqual(self.check(after, baseline=before)[0], good, (name, grown))

    def test_better_figure_is_mentioned(self) -> None:
        self.load["load"] = [7000.0]
        good, text = self.check(self.now)
        self.assertTrue(good)
        self.assertIn("better: module: LOAD, 128 MiB, load: 8,000 before, now 7,000", text)
        self.assertIn("The baseline can be renewed with: cp ", text)

    def test_missing_figure_fails(self) -> None:
        without_row, without_phase, left_out = (copy.deepcopy(BASELINE) for _ in range(3))
        del without_row["rows"][0]
        del without_phase["rows"][1]["close"]
        left_out["rows"][1] = {"size": 128 * MIB, "way": "module: LOAD", "unavailable": "no memory"}
        for now, words in ((without_row, "READ, 4 KiB, io: 9,000 before, now missing"),
                           (without_phase, "close: 900 before, now missing"),
                           (left_out, "now missing: no memory")):
            good, text = self.check(now)
            self.assertFalse(good, words)
            self.assertIn(words, text)

    def test_new_figure_passes(self) -> None:
        self.now["rows"].append(self.load | {"way": "another"})
        self.assertTrue(self.check(self.now)[0])

    def test_empty_comparison_and_other_units_fail(self) -> None:
        self.assertFalse(self.check(self.now | {"unit": "nanoseconds"})[0])
        self.assertFalse(self.check(self.now, baseline=cost())[0])

    def test_results_of_other_benchmarks_are_refused(self) -> None:
        with self.assertRaisesRegex(ValueError, "bench cost"):
            self.check(LOAD)


if __name__ == "__main__":
    unittest.main()
