# SPDX-License-Identifier: MIT OR Apache-2.0
"""Charts are drawn from the output of the benchmarks, and are reproducible."""

import contextlib
import io
import json
import pathlib
import tempfile
import unittest

from charts import __main__ as charts
from charts import style
from figures import compare, load, rates, stream
from tests.samples import COMPARE, COST, LOAD, RATES, SMALL, STREAM, keep

NAMES = ("cost", "cost-by-size", "load", "compare", "compare-small", "compare-large", "compare-four",
         "compare-guest", "stream", "rates", "small", "peers-many", "peers-few")


class Charts(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        for name, data in (("cost-7.3-series", COST), ("load-7.3-series", LOAD),
                           ("stream-cost-7.3-series", STREAM), ("rates-7.3-series", RATES),
                           ("small-cost-7.3-series", SMALL), ("compare", COMPARE), ("compare-large", COMPARE),
                           ("compare-four", {**COMPARE, "processes": 4}),
                           ("compare-7.3-series", COMPARE), ("compare-peers-many", COMPARE),
                           ("compare-peers-few", COMPARE)):
            keep(self.folder / f"{name}.json", data)

    def draw(self, to: str) -> dict[str, bytes]:
        with contextlib.redirect_stdout(io.StringIO()):
            charts.main(self.folder, self.folder / to)
        return {path.name: path.read_bytes() for path in (self.folder / to).iterdir()}

    def test_every_chart_is_drawn_and_redrawing_is_stable(self) -> None:
        first = self.draw("first")
        self.assertEqual(set(first), {f"{name}.svg" for name in NAMES})
        self.assertEqual(first, self.draw("second"))

    def test_changed_figures_change_only_their_chart(self) -> None:
        first = self.draw("first")
        changed = json.dumps(LOAD).replace("100.0", "90.0")
        keep(self.folder / "load-7.3-series.json", json.loads(changed))
        second = self.draw("second")
        self.assertEqual({name for name in first if first[name] != second[name]}, {"load.svg"})

    def test_charts_of_several_files_differ(self) -> None:
        first = self.draw("first")
        self.assertNotEqual(first["compare-four.svg"], first["compare-large.svg"])

    def test_missing_results_draw_no_chart(self) -> None:
        (self.folder / "compare.json").unlink()
        self.assertNotIn("compare.svg", self.draw("first"))

    def test_result_files_are_parsed(self) -> None:
        size = compare.read(self.folder / "compare.json").sizes[0]
        self.assertEqual((size.ceiling, [way.name for way in size.ways if way.is_ours]),
                         ((1 << 30) / 0.25 / 1e9, ["dmabuf-dio memfd"]))
        self.assertEqual(compare.read(self.folder / "compare-four.json").sizes[0].ways[0].speed.median,
                         4 * size.ways[0].speed.median)
        size = load.read(self.folder / "load-7.3-series.json").sizes[0]
        self.assertEqual((size.relative("LOAD module direct"), size.relative("LOAD heap direct")),
                         (0.25, None))
        streams = stream.read(self.folder / "stream-cost-7.3-series.json")
        self.assertEqual((streams.sinks(), list(streams.ways("file"))),
                         (["nothing", "file"], ["read()", "dma-buf"]))
        found = rates.read(self.folder / "rates-7.3-series.json")
        self.assertEqual((found.loads(), found.ways(), found.rates()),
                         (["idle", "busy"], ["dmabuf-dio", "iio_rwdev"], [1e3, 62.5e6]))
        self.assertEqual([row.share for row in found.of("idle", "iio_rwdev")], [0.0, 0.5])
        with self.assertRaisesRegex(ValueError, "bench compare"):
            compare.read(self.folder / "load-7.3-series.json")

    def test_labels_do_not_overlap(self) -> None:
        moved = style.apart([0.5, 0.1, 0.5, 0.51], 0.05)
        ordered = sorted(moved)
        self.assertTrue(all(b - a > 0.0499 for a, b in zip(ordered, ordered[1:])), moved)
        self.assertEqual(moved[1], 0.1)


if __name__ == "__main__":
    unittest.main()
