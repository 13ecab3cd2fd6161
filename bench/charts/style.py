# SPDX-License-Identifier: MIT OR Apache-2.0
"""What charts look like: each is drawn twice, for light and for dark pages."""

import dataclasses
import pathlib
from collections.abc import Callable

import matplotlib
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

matplotlib.use("agg")


@dataclasses.dataclass(frozen=True)
class Theme:
    """Colours; `ours` and `others` are those of I/O, close and allocation."""

    suffix: str
    page: str
    text: str
    quiet: str
    grid: str
    ours: tuple[str, str, str]
    others: tuple[str, str, str]
    # Of lines, told from each other without red and green
    lines: tuple[str, ...]

    @property
    def accent(self) -> str:
        return self.ours[0]


LIGHT = Theme("", "#ffffff", "#1f2328", "#59636e", "#d8dee4",
              ("#0550ae", "#5fa8e8", "#b6d7f5"), ("#6e7781", "#a3acb5", "#d0d7de"),
              ("#0550ae", "#bc4c00", "#0a7e76", "#8250df", "#4d88d6", "#9a6700", "#6e7781"))
DARK = Theme("-dark", "#0d1117", "#e6edf3", "#9198a1", "#2d333b",
             ("#58a6ff", "#2f6fbf", "#1c4272"), ("#8b949e", "#5c646d", "#393f47"),
             ("#58a6ff", "#f0883e", "#39c5bb", "#bc8cff", "#a5d0ff", "#d4a72c", "#8b949e"))
THEMES = (LIGHT, DARK)

SETTINGS = {
    # Letters become outlines of a font that comes with matplotlib: the same everywhere.
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "svg.fonttype": "path",
    "svg.hashsalt": "dmabuf-dio",
    "axes.spines.top": False,
    "axes.spines.right": False,
}

Draw = Callable[[Theme], Figure]


def save(folder: pathlib.Path, name: str, draw: Draw) -> None:
    """Writes the chart for every theme, as SVG and as PNG, without anything that changes."""
    folder.mkdir(parents=True, exist_ok=True)
    for theme in THEMES:
        with rc_context({**SETTINGS, **_colours(theme)}):
            figure = draw(theme)
            stem = folder / f"{name}{theme.suffix}"
            figure.savefig(stem.with_suffix(".svg"), metadata={"Date": None, "Creator": None})
            figure.savefig(stem.with_suffix(".png"), dpi=144, metadata={"Software": None})


def _colours(theme: Theme) -> dict[str, str]:
    text = ("text.color", "axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor")
    return {"figure.facecolor": theme.page, "axes.facecolor": theme.page,
            "savefig.facecolor": theme.page, "axes.edgecolor": theme.grid,
            "xtick.color": theme.grid, "ytick.color": theme.grid,
            "grid.color": theme.grid, **dict.fromkeys(text, theme.text)}


def title(figure: Figure, theme: Theme, text: str, below: str) -> None:
    """A title, and in small letters where and how it was measured."""
    height = figure.get_figheight()
    figure.text(0.012, 1 - 0.10 / height, text, fontsize=13, weight="bold", va="top")
    figure.text(0.012, 1 - 0.38 / height, below, fontsize=8.5, color=theme.quiet, va="top")


def bars(axes: Axes, names: list[str], ours: set[str], theme: Theme) -> None:
    """One row per name, from the top down; ours stand out."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    for label in axes.get_yticklabels():
        if label.get_text() in ours:
            label.set(color=theme.accent, weight="bold")
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x", linewidth=0.8)
    axes.set_axisbelow(True)


def apart(values: list[float], least: float) -> list[float]:
    """The values, moved so far that any two are at least that far apart: for labels."""
    order = sorted(range(len(values)), key=values.__getitem__)
    moved = list(values)
    for _ in range(200):
        for low, high in zip(order, order[1:]):
            lack = least - (moved[high] - moved[low])
            if lack > 1e-9:
                moved[low] -= lack / 2
                moved[high] += lack / 2
    return moved
