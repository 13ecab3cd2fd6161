# SPDX-License-Identifier: MIT OR Apache-2.0
"""The check of costs fails when it should."""

import contextlib
import io
import json
import pathlib
import tempfile
import unittest

from figures import check
from figures.results import MIB
from tests.samples import cost, result

READ = {"size": 4096, "way": "module: READ", "allocation": [9000.0], "io": [9000.0], "close": [9000.0]}
LOAD = {"size": 128 * MIB, "way": "module: LOAD", "load": [8000.0], "close": [900.0]}
BASELINE = cost(READ, LOAD, {"size": 128 * MIB, "way": "absent", "unavailable": "this kernel lacks it"})


class Check(unittest.TestCase):
    def check(self, *now: dict, baseline: dict = BASELINE) -> tuple[bool, str]:
        with tempfile.TemporaryDirectory() as folder:
            paths = [pathlib.Path(folder) / f"{number}" for number in range(len(now) + 1)]
            for path, data in zip(paths, (baseline, *now)):
                path.write_text(json.dumps(data))
            with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
                good, self.again = check.judge(*paths)
        return good, out.getvalue()

    def changed(self, way: dict, **figures: list[float] | None) -> dict:
        """The baseline with other figures of a way, or without some."""
        rows = [{name: value for name, value in (row | figures).items() if value is not None} if row["way"] == way["way"] else row
                for row in BASELINE["rows"]]
        return BASELINE | {"rows": rows}

    def test_changes_beyond_the_threshold_are_named(self) -> None:
        for now, good, text in (
            (BASELINE, True, "7 figures, 0 worse, 0 better by more than 5%\n"),
            (self.changed(LOAD, load=[8401.0]), False, "WORSE: module: LOAD, 128 MiB, load: 8,000 before, now 8,401 (+5.0%) per MiB\n7 figures, 1 worse"),
            (self.changed(LOAD, load=[8399.0]), True, "7 figures, 0 worse"),
            # More than 5 %, but too few instructions
            (self.changed(LOAD, close=[1149.0]), True, "7 figures, 0 worse"),
            (self.changed(LOAD, close=[1151.0]), False, "7 figures, 1 worse"),
            (self.changed(READ, io=[14999.0]), True, "7 figures, 0 worse"),
            (self.changed(LOAD, load=[7000.0]), True, "better: module: LOAD, 128 MiB, load: 8,000 before, now 7,000 (-12.5%) per MiB\n"
                                                      "The baseline can be renewed with: cp "),
            (self.changed(LOAD, another=[1.0]), True, "7 figures, 0 worse"),
            (self.changed(LOAD, close=None), False, "close: 900 before, now missing: not measured"),
            (cost(LOAD), False, "READ, 4 KiB, io: 9,000 before, now missing"),
            (cost(READ, {"size": 128 * MIB, "way": "module: LOAD", "unavailable": "no memory"}), False, "now missing: no memory"),
            (BASELINE | {"unit": "nanoseconds"}, False, "counts nanoseconds, the baseline instructions"),
        ):
            found = self.check(now)
            self.assertEqual((found[0], text in found[1]), (good, True), (text, found))
        self.assertFalse(self.check(BASELINE, baseline=cost())[0], "nothing to compare")

    def test_worse_figures_are_measured_again(self) -> None:
        worse = self.changed(LOAD, load=[8401.0])
        self.assertFalse(self.check(worse)[0])
        self.assertEqual(self.again, ["--sizes=134217728", "--only=module: LOAD"])
        for load, good in ((8401.0, False), (8001.0, True)):
            self.assertEqual(self.check(worse, cost(LOAD | {"load": [load]}))[0], good)

    def test_way_that_transfers_twice_may_sleep_twice(self) -> None:
        for name, grown, good in (("module: READ", 7000.0, False), ("heap, again", 7000.0, True), ("heap, again", 13000.0, False)):
            before, after = (cost({"size": 4096, "way": name, "io": [9000.0 + more]}) for more in (0.0, grown))
            self.assertEqual(self.check(after, baseline=before)[0], good, (name, grown))

    def test_results_of_other_benchmarks_are_refused(self) -> None:
        with self.assertRaisesRegex(ValueError, "bench cost"):
            self.check(result("load"))


if __name__ == "__main__":
    unittest.main()
