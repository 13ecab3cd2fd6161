# SPDX-License-Identifier: MIT OR Apache-2.0
"""Results have a line for each row, and each has a line of bench/runs that makes it."""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import pathlib
import tempfile
import unittest
import unittest.mock

from figures import results
from tests.samples import BENCH, cost, result

LOADER = importlib.machinery.SourceFileLoader("run", str(BENCH / "run"))
run = importlib.util.module_from_spec(importlib.util.spec_from_loader("run", LOADER))
LOADER.exec_module(run)


class Results(unittest.TestCase):
    def test_each_row_has_one_line(self) -> None:
        text = results.text(result("cost", {"size": 1, "way": "a", "io": [3.0, 1.0, 2.0]}, {"size": 1, "way": "b", "failed": "x"}))
        self.assertEqual(text.splitlines()[-2:], ['  {"size": 1, "way": "a", "io": [3.0, 1.0, 2.0]},',
                                                  '  {"size": 1, "way": "b", "failed": "x"}]}'])

    def test_rows_have_figures_or_a_reason(self) -> None:
        found = results.Result(result("cost", {"size": 1, "way": "a", "io": [3.0, 1.0, 2.0]}, {"size": 1, "way": "b", "failed": "x"}))
        self.assertEqual(found.row(way="a").io, results.Summary(2.0, 1.0, 3.0))
        self.assertEqual((found.rows[1].reason, found.each("way")), ("x", ["a"]))
        with self.assertRaises(LookupError):
            found.row(way="b")

    def test_kept_results_have_their_form(self) -> None:
        files = sorted((BENCH / "results").iterdir())
        self.assertTrue(files)
        for path in files:
            text = path.read_text()
            self.assertEqual(results.text(json.loads(text)), text, path)
            with self.assertRaisesRegex(ValueError, "bench other"):
                results.read(path, "other")


class Runs(unittest.TestCase):
    def test_each_result_has_a_line(self) -> None:
        known = run.groups((BENCH / "runs").read_text(), {"PEER": "", "LARGE": "13G"})
        names = [name for lines in known.values() for name, _, _ in lines]
        # What loaders of other projects need is measured by bench/peers, and devices by bench/device.
        kept = {path.stem for path in (BENCH / "results").iterdir() if "peers" not in path.stem and not path.stem.startswith("device-")}
        self.assertEqual((set(names), len(names)), (kept, len(kept)))
        self.assertIn(("compare-large", ["here"], ["compare", "--sizes", "13G"]), known["compare"])

    def test_names_are_replaced_and_words_kept(self) -> None:
        text = "let A = --icount\nlet B = $A --iommu\n[one] # what\nx | $B | cost --only \"a b\"\n"
        self.assertEqual(run.groups(text, {}), {"one": [("x", ["--icount", "--iommu"], ["cost", "--only", "a b"])]})

    def measure(self, script: str, folder: pathlib.Path) -> None:
        program = folder / "program"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        with unittest.mock.patch.dict(run.PROGRAMS, {False: str(program)}), contextlib.redirect_stdout(io.StringIO()):
            run.measure(("x", ["here"], ["cost"]), folder)

    def test_result_is_stored_with_its_command(self) -> None:
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        data = cost({"size": 4096, "way": "a", "io": [1.0]})
        (folder / "json").write_text(json.dumps(data))
        self.measure(f'echo report; for last; do :; done; cp {folder}/json "$last"', folder)
        kept = json.loads((folder / "x.json").read_text())
        self.assertEqual(kept, data | {"command": f"{folder}/program cost"})
        with contextlib.redirect_stderr(io.StringIO()), self.assertRaisesRegex(SystemExit, "status 7"):
            self.measure("exit 7", folder)
        self.assertEqual(json.loads((folder / "x.json").read_text()), kept)


if __name__ == "__main__":
    unittest.main()
