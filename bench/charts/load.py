# SPDX-License-Identifier: MIT OR Apache-2.0
"""LOAD beside allocating and reading one after the other."""

import math

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter

from figures.cost import size_name
from figures.load import Load

from . import style
from .style import Theme

SCHEMES = ("sendfile direct", "udmabuf direct", "LOAD module buffer", "LOAD heap direct",
           "LOAD heap direct, gather", "LOAD module direct", "LOAD module direct, gather")
COLOURS = (6, 3, 4, 5, 1, 2, 0)
TIMES = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8, 16)


def relative(load: Load, theme: Theme) -> Figure:
    """Time relative to normal, by size."""
    sizes = [size for size in load.sizes if size.total]
    figure = Figure(figsize=(10, 5.2))
    axes = figure.subplots(gridspec_kw={"left": 0.09, "right": 0.70, "top": 0.84, "bottom": 0.11})
    axes.set(yscale="log", xlabel="size of the file", ylabel="time relative to “normal”")
    axes.minorticks_off()
    axes.yaxis.set_major_locator(FixedLocator(TIMES))
    axes.yaxis.set_major_formatter(FuncFormatter(_times))
    axes.set_xticks(range(len(sizes)), [size_name(size.bytes) for size in sizes])
    axes.grid(axis="y", linewidth=0.8)
    axes.axhline(1, color=theme.text, linewidth=1.2, linestyle=(0, (5, 3)))
    ends = [("normal: allocate, map, read()", theme.text, 1.0)]
    for scheme, colour in zip(SCHEMES, COLOURS):
        times = [size.relative(scheme) for size in sizes]
        shown = [(place, time) for place, time in enumerate(times) if time is not None]
        if not shown:
            continue
        axes.plot(*zip(*shown), marker="o", color=theme.lines[colour],
                  linewidth=2.4 if "gather" in scheme else 1.5)
        ends.append((scheme, theme.lines[colour], shown[-1][1]))
    low, high = axes.get_ylim()
    span = math.log(high / low)
    places = style.apart([math.log(time / low) / span for *_, time in ends], 0.055)
    for (scheme, colour, time), place in zip(ends, places):
        axes.annotate(f"{scheme}  {time:.2f}", (1.0, place), xycoords="axes fraction",
                      xytext=(8, 0), textcoords="offset points", va="center", fontsize=9,
                      color=colour, weight="bold" if "gather" in scheme else "normal")
    runs = f"{load.runs} runs" if load.runs > 1 else "1 run"
    style.title(figure, theme, "A file in a new dma-buf: time beside allocating, then reading",
                f"Linux {load.kernel} with the patch series, ext4 on NVMe, emulated: ratios within "
                f"one size only; {runs}; lower is faster")
    return figure


def _times(value: float, _position: int) -> str:
    return f"{value:g} x" if value >= 1 else f"1/{1 / value:.0f}"
