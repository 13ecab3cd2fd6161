# SPDX-License-Identifier: MIT OR Apache-2.0
"""The check of costs fails when it should."""

import contextlib
import copy
import io
import pathlib
import tempfile
import unittest
import unittest.mock

from figures import check
from tests.samples import COST, keep, summary, way

BASELINE = COST | {"sizes": [
    COST["sizes"][0],
    COST["sizes"][2] | {"ways": [way("module: LOAD", load=8000.0, close=900.0),
                                 way("absent", reason="this kernel lacks it")]},
]}


def load(data: dict) -> dict:
    return data["sizes"][1]["ways"][0]


class Check(unittest.TestCase):
    def check(self, *now: dict) -> tuple[int, str]:
        with tempfile.TemporaryDirectory() as folder:
            again = pathlib.Path(folder) / "options"
            paths = [pathlib.Path(folder) / f"{number}" for number in range(len(now) + 1)]
            for path, data in zip(paths, (BASELINE, *now)):
                keep(path, data)
            with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
                status = check.main([*map(str, paths), "--again", str(again)])
            self.again = again.read_text().splitlines() if again.exists() else []
        return status, out.getvalue()

    def setUp(self) -> None:
        self.now = copy.deepcopy(BASELINE)

    def test_equal_figures_pass(self) -> None:
        status, text = self.check(self.now)
        self.assertEqual((status, text), (0, "7 figures, 0 worse, 0 better by more than 5%\n"))

    def test_worse_figure_fails_and_is_named(self) -> None:
        load(self.now)["load"] = summary(8401.0)
        status, text = self.check(self.now)
        self.assertEqual(status, 1)
        self.assertIn("WORSE: module: LOAD, 128 MiB, load: 8,000 before, now 8,401 (+5.0%) per MiB",
                      text)
        self.assertIn("7 figures, 1 worse", text)

    def test_small_differences_pass(self) -> None:
        load(self.now)["load"] = summary(8399.0)
        # More than 5 %, but too few instructions
        load(self.now)["close"] = summary(1149.0)
        self.now["sizes"][0]["ways"][0]["io"] = summary(14999.0)
        self.assertEqual(self.check(self.now)[0], 0)
        load(self.now)["close"] = summary(1151.0)
        self.assertEqual(self.check(self.now)[0], 1)

    def test_worse_figures_are_measured_again(self) -> None:
        load(self.now)["load"] = summary(8401.0)
        self.assertEqual(self.check(self.now)[0], 1)
        self.assertEqual(self.again, ["--sizes=134217728", "--only=module: LOAD"])
        second = copy.deepcopy(self.now)
        second["sizes"] = second["sizes"][1:]
        self.assertEqual(self.check(self.now, second)[0], 1)
        load({"sizes": [{}, *second["sizes"]]})["load"] = summary(8001.0)
        self.assertEqual(self.check(self.now, second)[0], 0)

    def test_way_that_transfers_twice_may_sleep_twice(self) -> None:
        small = self.now["sizes"][0]["ways"][0]
        with unittest.mock.patch.dict(BASELINE, copy.deepcopy(BASELINE)):
            old = BASELINE["sizes"][0]["ways"][0]
            for name, grown, status in (("module: READ", 7000.0, 1), ("heap, again", 7000.0, 0), ("heap, again", 13000.0, 1)):
                old["name"] = small["name"] = name
                small["io"] = summary(old["io"]["median"] + grown)
                self.assertEqual(self.check(self.now)[0], status, (name, grown))

    def test_better_figure_is_mentioned(self) -> None:
        load(self.now)["load"] = summary(7000.0)
        status, text = self.check(self.now)
        self.assertEqual(status, 0)
        self.assertIn("better: module: LOAD, 128 MiB, load: 8,000 before, now 7,000", text)
        self.assertIn("The baseline can be renewed with: cp ", text)

    def test_missing_figure_fails(self) -> None:
        without_way, without_size, without_phase, left_out = (
            copy.deepcopy(BASELINE) for _ in range(4))
        del without_way["sizes"][1]["ways"][0]
        del without_size["sizes"][0]
        load(without_phase)["close"] = None
        left_out["sizes"][1] |= {"reason": "no memory", "ways": []}
        for now, words in ((without_way, "LOAD, 128 MiB, total: 8,900 before, now missing"),
                           (without_size, "READ, 4 KiB, io: 9,000 before, now missing"),
                           (without_phase, "close: 900 before, now missing"),
                           (left_out, "now missing: no memory")):
            status, text = self.check(now)
            self.assertEqual(status, 1, words)
            self.assertIn(words, text)

    def test_new_figure_passes(self) -> None:
        self.now["sizes"][1]["ways"].append(load(self.now) | {"name": "another"})
        self.assertEqual(self.check(self.now)[0], 0)

    def test_empty_comparison_and_other_units_fail(self) -> None:
        self.assertEqual(self.check(self.now | {"unit": "nanoseconds"})[0], 1)
        with unittest.mock.patch.dict(BASELINE, {"sizes": []}):
            self.assertEqual(self.check(self.now)[0], 1)

    def test_results_of_other_benchmarks_are_refused(self) -> None:
        with self.assertRaisesRegex(ValueError, "bench cost"):
            self.check(self.now | {"bench": "load"})


if __name__ == "__main__":
    unittest.main()
