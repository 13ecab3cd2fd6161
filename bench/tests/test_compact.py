# SPDX-License-Identifier: MIT OR Apache-2.0
"""Results are stored one line per run, without derived values, and nothing else is lost."""

import copy
import json
import pathlib
import subprocess
import sys
import unittest

from figures import compact
from tests.samples import COMPARE, COST, LOAD, SMALL, STREAM

BENCH = pathlib.Path(__file__).resolve().parent.parent
VALUES = {"median": 2.0, "min": 1.0, "max": 3.0, "values": [3.0, 1.0, 2.0]}
TABLE = {"schema": 1, "bench": "table", "runs": 3, "parts": [{"direction": "read", "base": 1, "rows": [
    {"number": 1, "name": "R/W", "status": "verified", "reason": None, "io_ms": VALUES,
     "close_ms": VALUES, "io_mb_per_s": 5.0, "percent": 100.0, "notes": []},
    {"number": 2, "name": "c_f_r", "status": "unavailable", "reason": "no", "notes": ["why"]}]}]}


def kept(printed: dict) -> dict:
    return compact.compact(copy.deepcopy(printed), "bench")


class Compact(unittest.TestCase):
    def test_table_results_are_compacted(self) -> None:
        self.assertEqual(kept(TABLE), {
            "schema": 2, "bench": "table", "command": "bench", "runs": 3, "parts": [
                {"direction": "read", "rows": [
                    {"number": 1, "name": "R/W", "status": "verified", "runs": [
                        {"io_ms": 3.0, "close_ms": 3.0}, {"io_ms": 1.0, "close_ms": 1.0},
                        {"io_ms": 2.0, "close_ms": 2.0}]},
                    {"number": 2, "name": "c_f_r", "status": "unavailable", "reason": "no",
                     "notes": ["why"]}]}]})

    def test_each_run_has_one_line(self) -> None:
        lines = compact.text(kept(TABLE)).splitlines()
        self.assertEqual(lines, [
            '{"schema": 2,', ' "bench": "table",', ' "command": "bench",', ' "runs": 3,', ' "parts": [',
            '  {"direction": "read", "rows": [',
            '   {"number": 1, "name": "R/W", "status": "verified", "runs": [',
            '    {"io_ms": 3.0, "close_ms": 3.0},', '    {"io_ms": 1.0, "close_ms": 1.0},',
            '    {"io_ms": 2.0, "close_ms": 2.0}]},',
            '   {"number": 2, "name": "c_f_r", "status": "unavailable", "reason": "no", "notes": ["why"]}]}]}'])

    def test_nested_values_come_last(self) -> None:
        text = compact.text({"rows": [{"runs": [{"a": 1}], "name": "b"}]})
        self.assertEqual(text, '{"rows": [\n  {"name": "b", "runs": [\n   {"a": 1}]}]}\n')

    def test_text_parses_back_to_the_same_data(self) -> None:
        for printed in (COMPARE, COST, LOAD, SMALL, STREAM, TABLE):
            self.assertEqual(json.loads(compact.text(kept(printed))), kept(printed))

    def test_derived_values_are_dropped(self) -> None:
        row = {"name": "a", "seconds": VALUES, "gb_per_s": VALUES, "cpu_seconds_per_gib": VALUES, "ratio": 0.5}
        size = COMPARE["sizes"][0] | {"rows": [row]}
        found = kept(COMPARE | {"sizes": [size]})["sizes"][0]
        self.assertEqual(found["rows"], [
            {"name": "a", "runs": [{"seconds": 3.0}, {"seconds": 1.0}, {"seconds": 2.0}]}])
        self.assertEqual(found["base"], {"name": "fio", "is_ceiling": True})

    def test_rounding_noise_is_dropped_and_digits_kept(self) -> None:
        values = VALUES | {"values": [0.00017900000000000026, 1234567.89012, 3.0]}
        row = {"name": "a", "io_ms": values}
        found = kept({"schema": 1, "bench": "load", "sizes": [{"rows": [row]}]})
        self.assertEqual([run["io_ms"] for run in found["sizes"][0]["rows"][0]["runs"]],
                         [0.000179, 1234567.89012, 3.0])

    def test_unequal_run_counts_are_refused(self) -> None:
        row = {"name": "a", "io_ms": VALUES, "close_ms": VALUES | {"values": [1.0]}}
        with self.assertRaises(ValueError):
            kept({"schema": 1, "bench": "table", "parts": [{"rows": [row]}]})

    def test_other_schemas_are_refused(self) -> None:
        with self.assertRaisesRegex(ValueError, "schema 2"):
            kept(kept(COST))

    def test_command_line_program_compacts_stdin(self) -> None:
        done = subprocess.run([sys.executable, "-m", "figures.compact", "vm/run", "a b"], cwd=BENCH, input=json.dumps(TABLE), text=True,
                              capture_output=True, check=True)
        self.assertEqual(json.loads(done.stdout), kept(TABLE) | {"command": "vm/run 'a b'"})

    def test_kept_results_are_in_compact_form(self) -> None:
        files = sorted((BENCH / "results").iterdir())
        self.assertTrue(files)
        for path in files:
            text = path.read_text()
            data = json.loads(text)
            self.assertEqual(data["schema"], compact.SCHEMA, path)
            self.assertEqual(compact.text(data), text, path)


if __name__ == "__main__":
    unittest.main()
