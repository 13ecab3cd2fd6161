# SPDX-License-Identifier: MIT OR Apache-2.0
"""Draws every chart whose results exist: python3 -m charts RESULTS FOLDER"""

import functools
import pathlib
import sys
from collections.abc import Callable

import figures.compare
import figures.cost
import figures.load
import figures.rates
import figures.small
import figures.stream
from matplotlib.figure import Figure

from . import compare, cost, load, rates, small, stream, style

# Name, results, functions that read and draw them
CHARTS: tuple[tuple[str, str, Callable, Callable[..., Figure]], ...] = (
    ("cost", "cost-7.3-series.json", figures.cost.read, cost.by_way),
    ("cost-by-size", "cost-7.3-series.json", figures.cost.read, cost.by_size),
    ("load", "load-7.3-series.json", figures.load.read, load.relative),
    ("compare", "compare.json", figures.compare.read, compare.speed),
    ("compare-small", "compare.json", figures.compare.read, compare.small),
    ("compare-large", "compare-large.json", figures.compare.read, compare.speed),
    ("compare-four", "compare-four.json", figures.compare.read, compare.speed),
    ("compare-guest", "compare-7.3-series.json", figures.compare.read, compare.speed),
    ("stream", "stream-cost-7.3-series.json", figures.stream.read, stream.cost),
    ("rates", "rates-7.3-series.json", figures.rates.read, rates.lost),
    ("small", "small-cost-7.3-series.json", figures.small.read, small.cost),
    ("peers-many", "compare-peers-many.json", figures.compare.read, compare.speed),
    ("peers-few", "compare-peers-few.json", figures.compare.read, compare.speed),
)


def main(results: pathlib.Path, folder: pathlib.Path) -> int:
    for name, file, read, draw in CHARTS:
        if not (results / file).exists():
            print(f"{name}: not drawn, there is no {results / file}")
            continue
        path = folder / f"{name}.svg"
        style.save(path, functools.partial(draw, read(results / file)))
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(*(pathlib.Path(argument) for argument in sys.argv[1:3])))
