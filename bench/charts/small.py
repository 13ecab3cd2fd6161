# SPDX-License-Identifier: MIT OR Apache-2.0
"""What a small random read costs the CPU, by how many are in flight."""

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from figures.small import Small

from . import style
from .style import Theme

# Name of a line, how it is called, colour, width
LINES = {
    "libaio, user": ("libaio", 6, 1.5),
    "io_uring, user": ("io_uring", 5, 1.5),
    "io_uring, registered": ("io_uring, registered memory", 1, 1.5),
    "io_uring, lent": ("io_uring, lent pages", 4, 2.4),
    "gather": ("gather, lent pages", 0, 2.4),
}


def cost(small: Small, theme: Theme) -> Figure:
    """Instructions per read: a panel for each target, a line for each way."""
    targets = small.targets()
    figure = Figure(figsize=(10, 4.6))
    panels = figure.subplots(1, len(targets), sharey=True, squeeze=False,
                             gridspec_kw={"left": 0.08, "right": 0.99, "top": 0.80,
                                          "bottom": 0.26, "wspace": 0.08})[0]
    # With one in flight waking up is most of it, and hides the rest.
    depths = [depth for depth in small.depths if depth > 1]
    for axes, target in zip(panels, targets):
        axes.set_title("raw device" if target == "raw" else target, fontsize=10, loc="left")
        axes.set_xticks(range(len(depths)), [str(depth) for depth in depths])
        axes.set_xlabel("reads in flight")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.grid(axis="y", linewidth=0.8)
        for name, (label, colour, width) in LINES.items():
            points = [(place, small.point(target, name, depth))
                      for place, depth in enumerate(depths)]
            drawn = [(place, point.per_read["median"]) for place, point in points if point]
            if drawn:
                axes.plot(*zip(*drawn), marker="o", color=theme.lines[colour], linewidth=width,
                          label=label)
    panels[0].set_ylim(bottom=0)
    panels[0].set_ylabel("instructions per read")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=len(labels), frameon=False,
                  fontsize=9, labelcolor=theme.text)
    style.title(figure, theme, "Random direct reads of 4 KiB: what they cost the CPU",
                f"Linux {small.kernel} with the patch series, NVMe, {small.runs} runs of "
                f"{small.reads:,} reads; all that the CPU did; lower is better")
    return figure
