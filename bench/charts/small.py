# SPDX-License-Identifier: MIT OR Apache-2.0
"""CPU cost of a small random read, by queue depth."""

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from figures.small import Small

from . import style

TARGETS = {"xfs": "XFS", "raw": "raw device"}
# Name of a line, label, colour, width. Lent pages cost the same as registered memory, whose line is
# therefore wider, to remain visible behind the other.
LINES = {
    "libaio, user": ("libaio", style.STONE, 1.5),
    "io_uring, user": ("io_uring", style.OCHRE, 1.5),
    "io_uring, registered": ("io_uring, registered memory", style.ORANGE, 6),
    "io_uring, lent": ("io_uring, lent pages", style.AZURE, 2.4),
    "gather": ("gather, lent pages", style.BLUE, 2.4),
}


def cost(small: Small) -> Figure:
    """Instructions per read: a panel for each target, a line for each way."""
    targets = small.targets()
    figure = Figure(figsize=(10, 4.2))
    panels = figure.subplots(1, len(targets), sharey=True, squeeze=False,
                             gridspec_kw={"left": 0.085, "right": 0.985, "top": 0.80,
                                          "bottom": 0.18, "wspace": 0.1})[0]
    # With one read in flight, waking up dominates the cost.
    depths = [depth for depth in small.depths if depth > 1]
    for axes, target in zip(panels, targets):
        axes.set_title(TARGETS.get(target, target), loc="left")
        axes.set_xticks(range(len(depths)), [str(depth) for depth in depths])
        axes.set_xlabel("reads in flight")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.grid(axis="y", linewidth=0.8)
        for name, (label, colour, width) in LINES.items():
            points = [(place, small.point(target, name, depth))
                      for place, depth in enumerate(depths)]
            drawn = [(place, point.per_read.median) for place, point in points if point]
            if drawn:
                axes.plot(*zip(*drawn), marker="o", markersize=max(5, width), color=colour,
                          linewidth=width, label=label)
    panels[0].set_ylim(bottom=0)
    panels[0].set_ylabel("instructions per read")
    style.legend(figure, *panels[0].get_legend_handles_labels())
    style.title(figure, "What a random direct read of 4 KiB costs the CPU",
                f"Lower is better. All that the CPU did. Linux {small.kernel} with the patch series, "
                f"NVMe, {small.runs} runs of {small.reads:,} reads")
    return figure
