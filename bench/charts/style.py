# SPDX-License-Identifier: MIT OR Apache-2.0
"""Style of the charts. They are drawn in the colours of light pages; `COLOURS` has the dark ones."""

import pathlib
from collections.abc import Callable

import matplotlib
from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple

from .svg import svg

matplotlib.use("agg")

# Colours on light and on dark pages. Lines are distinguishable without red and green.
COLOURS = {
    "page": ("#ffffff", "#0d1117"),
    "text": ("#1f2328", "#e6edf3"),
    "quiet": ("#59636e", "#9198a1"),
    "grid": ("#d8dee4", "#2d333b"),
    "blue": ("#0550ae", "#58a6ff"),
    "sky": ("#5fa8e8", "#2f6fbf"),
    "ice": ("#b6d7f5", "#1c4272"),
    "stone": ("#6e7781", "#8b949e"),
    "ash": ("#a3acb5", "#5c646d"),
    "mist": ("#d0d7de", "#393f47"),
    "orange": ("#bc4c00", "#f0883e"),
    "teal": ("#0a7e76", "#39c5bb"),
    "violet": ("#8250df", "#bc8cff"),
    "azure": ("#4d88d6", "#a5d0ff"),
    "ochre": ("#9a6700", "#d4a72c"),
}
(PAGE, TEXT, QUIET, GRID, BLUE, SKY, ICE, STONE, ASH, MIST, ORANGE, TEAL, VIOLET, AZURE,
 OCHRE) = (light for light, _ in COLOURS.values())

SETTINGS = {
    # Wider than readers' usual sans-serif fonts, so that their text fits, too.
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.facecolor": "none",
    "axes.labelsize": 9,
    "axes.titlesize": 10,
    "axes.titlecolor": TEXT,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "figure.facecolor": PAGE,
    "axes.edgecolor": GRID,
    "grid.color": GRID,
    **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), TEXT),
}
# Font size of labels next to lines and bars
SMALL = 8


def save(path: pathlib.Path, draw: Callable[[], Figure]) -> None:
    """Writes the chart, with its title as the alternative text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with rc_context(SETTINGS):
        figure = draw()
        path.write_text(svg(figure, figure.texts[0].get_text(), COLOURS))


def title(figure: Figure, text: str, *below: str) -> None:
    """A title, and in small print how to read the chart and where it was measured."""
    height = figure.get_figheight()
    figure.text(0.012, 1 - 0.10 / height, text, fontsize=13, weight="bold", va="top")
    for number, line in enumerate(below):
        figure.text(0.012, 1 - (0.37 + 0.17 * number) / height, line, fontsize=8.5, color=QUIET,
                    va="top")


def bars(axes: Axes, names: list[str], ours: set[str]) -> None:
    """One row per name, from top to bottom; ours are emphasised."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    for label in axes.get_yticklabels():
        if label.get_text() in ours:
            label.set(color=BLUE, weight="bold")
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x", linewidth=0.8)
    axes.set_axisbelow(True)


def amount(value: float, _position: int = 0) -> str:
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if abs(value) >= size:
            return f"{value / size:g} {unit}"
    return f"{value:g}"


def legend(figure: Figure, handles: list[Artist | tuple[Artist, ...]], labels: list[str]) -> None:
    """In one row at the bottom."""
    figure.legend(handles, labels, loc="lower center", ncols=len(labels), frameon=False, fontsize=9,
                  borderaxespad=0.2, handler_map={tuple: HandlerTuple(ndivide=None, pad=0.1)})


def apart(values: list[float], least: float) -> list[float]:
    """Positions for labels: the values, moved to have a minimum distance from each other."""
    order = sorted(range(len(values)), key=values.__getitem__)
    moved = list(values)
    for _ in range(200):
        for low, high in zip(order, order[1:]):
            lack = least - (moved[high] - moved[low])
            if lack > 1e-9:
                moved[low] -= lack / 2
                moved[high] += lack / 2
    return moved
