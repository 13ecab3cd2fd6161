# SPDX-License-Identifier: MIT OR Apache-2.0
"""What each way costs, in instructions per MiB."""

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from figures.cost import MIB, Cost, Way

from . import style
from .style import Theme

SHOWN = 128 * MIB
# Parts of other ways
PARTS = ("heap: allocate", "module: attach")
OURS = ("module:", "series:", "library: module", "library: slot", "library: heap",
        "library: copy_file_range")
# I/O comes first, so that it can be compared; what a program does once per buffer comes last.
STACK = (("I/O, or allocation and I/O in one call", ("io", "load")),
         ("close", ("close",)), ("allocation", ("allocation",)))
LINES = ("module: LOAD", "series: heap flag", "malloc: read()",
         "memfd, faulted in: io_uring 1 MiB x 8", "library: module",
         "heap: read() into the mapping", "memfd: read()")


def is_ours(name: str) -> bool:
    return name.startswith(OURS)


def amount(value: float, _position: int = 0) -> str:
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if abs(value) >= size:
            return f"{value / size:g} {unit}"
    return f"{value:g}"


def where(cost: Cost) -> str:
    return f"Linux {cost.kernel}, ext4 on NVMe, instructions counted in QEMU, median of {cost.runs} runs"


def by_way(cost: Cost, theme: Theme) -> Figure:
    """All ways twice: on a scale that holds them all, and on one for ours."""
    ways = [way for way in cost.size(SHOWN).ways.values()
            if way.figures and not way.name.startswith(PARTS)]
    ways.sort(key=lambda way: -way.figures["total"].median)
    names = [way.name for way in ways]
    ours = {name for name in names if is_ours(name)}
    figure = Figure(figsize=(10, 0.30 * len(ways) + 1.75))
    height = figure.get_figheight()
    whole, near = figure.subplots(1, 2, sharey=True, gridspec_kw={
        "left": 0.285, "right": 0.985, "top": 1 - 0.98 / height, "bottom": 0.72 / height,
        "wspace": 0.06})
    for axes in (whole, near):
        _stack(axes, ways, theme)
        style.bars(axes, names, ours, theme)
        axes.xaxis.set_major_formatter(FuncFormatter(amount))
    whole.set_xlim(0, 1.18 * ways[0].figures["total"].median)
    for row, way in enumerate(ways):
        whole.text(way.figures["total"].median, row, f" {way.figures['total'].median:,.0f}",
                   va="center", fontsize=8)
    near.set_xlim(0, _near(ways))
    _beyond(near, ways, theme)
    whole.set_title("all of it", fontsize=10, loc="left", color=theme.quiet)
    near.set_title("the beginning of the same bars", fontsize=10, loc="left", color=theme.quiet)
    figure.legend(handles=[Patch(color=theme.ours[part], label=name)
                           for part, (name, _) in enumerate(STACK)],
                  loc="lower left", bbox_to_anchor=(0.275, 0.0), ncols=3, frameon=False)
    style.title(figure, theme, "Instructions per MiB, from no buffer to a freed one",
                f"A 128 MiB file; {where(cost)}; blue: by the module or the patches")
    return figure


def _parts(way: Way) -> list[float]:
    return [sum(way.figures[phase].median for phase in phases if phase in way.figures)
            for _, phases in STACK]


def _stack(axes: Axes, ways: list[Way], theme: Theme) -> None:
    for row, way in enumerate(ways):
        left = 0.0
        colours = theme.ours if is_ours(way.name) else theme.others
        for part, colour in zip(_parts(way), colours):
            axes.barh(row, max(part, 0), left=left, color=colour, height=0.72)
            left += max(part, 0)


def _near(ways: list[Way]) -> float:
    """Room for those of ours that allocate and read in one call without zeroing."""
    return 1.35 * max(way.figures["total"].median for way in ways
                      if is_ours(way.name) and "load" in way.figures and way.zeroed == 0)


def _beyond(axes: Axes, ways: list[Way], theme: Theme) -> None:
    """Bars that go on say so, and how much of them is I/O."""
    end = axes.get_xlim()[1]
    for row, way in enumerate(ways):
        io = _parts(way)[0]
        if way.figures["total"].median > end:
            axes.plot(end, row, marker=">", markersize=7, color=theme.text, clip_on=False)
        if io < end:
            axes.text(io - 0.01 * end, row, f"{io:,.0f}", ha="right", va="center", fontsize=8,
                      color=theme.page)


def by_size(cost: Cost, theme: Theme) -> Figure:
    """The total over the size of the file."""
    sizes = [size for size in cost.sizes if size.per == "MiB" and size.ways]
    names = [name for name in LINES
             if all(name in size.ways and size.ways[name].figures for size in sizes)]
    figure = Figure(figsize=(10, 5.2))
    axes = figure.subplots(gridspec_kw={"left": 0.075, "right": 0.66, "top": 0.84, "bottom": 0.11})
    axes.set(xscale="log", yscale="log", xlabel="size of the file")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda *_: ""))
    axes.set_xticks([size.bytes for size in sizes], [size.name for size in sizes])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(FuncFormatter(amount))
    axes.grid(axis="y", linewidth=0.8)
    ends = {name: sizes[-1].ways[name].figures["total"].median for name in names}
    for name, colour in zip(names, theme.lines):
        totals = [size.ways[name].figures["total"] for size in sizes]
        axes.plot([size.bytes for size in sizes], [total.median for total in totals], marker="o",
                  color=colour, linewidth=2.4 if is_ours(name) else 1.5)
    axes.set_ylim(bottom=0.5 * min(ends.values()))
    low, high = axes.get_ylim()
    _labels(axes, ends, dict(zip(names, theme.lines)), low, high)
    style.title(figure, theme, "Instructions per MiB, by size of the file",
                f"From no buffer to a freed one; {where(cost)}")
    return figure


def _labels(axes: Axes, ends: dict[str, float], colours: dict[str, str], low: float,
            high: float) -> None:
    """Names beside the ends of lines."""
    span = math.log(high / low)
    places = style.apart([math.log(value / low) / span for value in ends.values()], 0.055)
    for (name, value), place in zip(ends.items(), places):
        axes.annotate(f"{name}  {value:,.0f}", (1.0, place), xycoords="axes fraction",
                      xytext=(8, 0), textcoords="offset points", va="center", fontsize=9,
                      color=colours[name], weight="bold" if is_ours(name) else "normal")
