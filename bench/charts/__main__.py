# SPDX-License-Identifier: MIT OR Apache-2.0
"""Draws every chart whose results exist: python3 -m charts RESULTS FOLDER"""

import functools
import pathlib
import sys
from collections.abc import Callable

from figures.results import Result, read
from matplotlib.figure import Figure

from . import bars, lines, soak, style

# Name, results, their benchmark, the function that draws them
CHARTS: tuple[tuple[str, str, str, Callable[[Result], Figure]], ...] = (
    ("cost", "cost-7.3-series", "cost", bars.cost),
    ("cost-by-size", "cost-7.3-series", "cost", lines.cost),
    ("load", "load-7.3-series", "load", lines.load),
    ("compare", "compare", "compare", bars.compare),
    ("compare-small", "compare", "compare", bars.compare_small),
    ("compare-large", "compare-large", "compare", bars.compare),
    ("compare-four", "compare-four", "compare", bars.compare),
    ("compare-guest", "compare-7.3-series", "compare", bars.compare),
    ("stream", "stream-cost-7.3-series", "stream", lines.stream),
    ("rates", "rates-7.3-series", "rates", lines.rates),
    ("small", "small-cost-7.3-series", "small", lines.small),
    ("peers-many", "compare-peers-many", "compare", bars.compare),
    ("peers-few", "compare-peers-few", "compare", bars.compare),
)
# What tests/soak/run printed; a soak is a test, so that its figures lie with it.
SOAK = pathlib.Path(__file__).parents[2] / "tests/soak/figures.txt"
DRAWN = pathlib.Path(__file__).parents[2] / "docs/notes/charts"


def main(results: pathlib.Path, folder: pathlib.Path) -> int:
    for name, file, bench, draw in CHARTS:
        path = results / f"{file}.json"
        if not path.exists():
            print(f"{name}: not drawn, there is no {path}")
            continue
        style.save(folder / f"{name}.svg", functools.partial(draw, read(path, bench)))
        print(folder / f"{name}.svg")
    style.save(folder / "soak.svg", functools.partial(soak.draw, SOAK.read_text()))
    print(folder / "soak.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main(*(pathlib.Path(argument) for argument in sys.argv[1:3])))
