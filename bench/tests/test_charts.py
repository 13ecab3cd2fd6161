# SPDX-License-Identifier: MIT OR Apache-2.0
"""Charts are drawn from results, also from those in which rows have no figures. `bench/selftest` compares those of bench/results."""

import contextlib
import io
import json
import pathlib
import tempfile
import unittest

from charts import __main__ as charts
from charts import style
from tests.samples import COMPARE, COST, LOAD, RATES, SMALL, STREAM

DATA = {"cost": COST, "load": LOAD, "compare": COMPARE, "stream": STREAM, "rates": RATES, "small": SMALL}


class Charts(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        for _, name, bench, _ in charts.CHARTS:
            self.keep(name, DATA[bench] | ({"processes": 4} if name == "compare-four" else {}))

    def keep(self, name: str, data: dict) -> None:
        (self.folder / f"{name}.json").write_text(json.dumps(data))

    def draw(self, to: str) -> dict[str, bytes]:
        with contextlib.redirect_stdout(io.StringIO()):
            charts.main(self.folder, self.folder / to)
        return {path.stem: path.read_bytes() for path in (self.folder / to).iterdir()}

    def test_every_chart_is_drawn_and_changed_figures_change_only_theirs(self) -> None:
        first = self.draw("first")
        self.assertEqual(set(first), {name for name, *_ in charts.CHARTS} | {"soak"})
        self.assertNotEqual(first["compare-four"], first["compare-large"])
        self.keep("load-7.3-series", json.loads(json.dumps(LOAD).replace("100.0", "90.0")))
        (self.folder / "compare.json").unlink()
        second = self.draw("second")
        self.assertEqual({name for name in first if first[name] != second.get(name)}, {"load", "compare", "compare-small"})
        self.assertNotIn("compare", second)

    def test_labels_do_not_overlap(self) -> None:
        moved = style.apart([0.5, 0.1, 0.5, 0.51], 0.05)
        ordered = sorted(moved)
        self.assertTrue(all(b - a > 0.0499 for a, b in zip(ordered, ordered[1:])), moved)
        self.assertEqual(moved[1], 0.1)


if __name__ == "__main__":
    unittest.main()
