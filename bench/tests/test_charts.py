# SPDX-License-Identifier: MIT OR Apache-2.0
"""Charts are drawn from results in which rows have no figures, or that are missing. `bench/selftest` compares those of bench/results."""

import contextlib
import io
import json
import pathlib
import tempfile
import unittest

from charts import __main__ as charts
from charts import style
from figures.results import OUTCOMES
from tests.samples import kept


class Charts(unittest.TestCase):
    def test_rows_without_figures_are_left_out(self) -> None:
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        # One is missing.
        for number, name in enumerate({file: None for _, file, *_ in charts.CHARTS if file != "compare"}):
            data = kept(name)
            for row in data["rows"][1::4]:
                for figure in [figure for figure, value in row.items() if isinstance(value, list)]:
                    del row[figure]
                row[OUTCOMES[number % 3]] = "no"
            (folder / f"{name}.json").write_text(json.dumps(data))
        with contextlib.redirect_stdout(io.StringIO()) as out:
            charts.main(folder, folder / "drawn")
        drawn = {path.stem: path.read_text() for path in (folder / "drawn").iterdir()}
        self.assertEqual(set(drawn), {name for name, file, *_ in charts.CHARTS if file != "compare"} | {"soak"}, out.getvalue())
        for name, text in drawn.items():
            self.assertEqual(text == (charts.DRAWN / f"{name}.svg").read_text(), name == "soak", name)

    def test_labels_do_not_overlap(self) -> None:
        moved = style.apart([0.5, 0.1, 0.5, 0.51], 0.05)
        ordered = sorted(moved)
        self.assertTrue(all(b - a > 0.0499 for a, b in zip(ordered, ordered[1:])), moved)
        self.assertEqual(moved[1], 0.1)


if __name__ == "__main__":
    unittest.main()
