# SPDX-License-Identifier: MIT OR Apache-2.0
"""CPU cost of each way, in instructions per MiB."""

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from figures.cost import MIB, Cost, Way

from . import style

SHOWN = 128 * MIB
# Parts of other ways
PARTS = ("heap: allocate", "module: attach")
OURS = ("module:", "series:", "library: module", "library: slot", "library: heap",
        "library: copy_file_range")
# I/O comes first, for comparison; the work done once per buffer comes last.
STACK = (("I/O, or allocation and I/O in one call", ("io", "load")),
         ("close", ("close",)), ("allocation", ("allocation",)))
OURS_PARTS = (style.BLUE, style.SKY, style.ICE)
OTHERS_PARTS = (style.STONE, style.ASH, style.MIST)
LINES = {
    "module: LOAD": style.BLUE,
    "series: heap flag": style.ORANGE,
    "malloc: read()": style.TEAL,
    "memfd, faulted in: io_uring 1 MiB x 8": style.VIOLET,
    "library: module": style.AZURE,
    "heap: read() into the mapping": style.OCHRE,
    "memfd: read()": style.STONE,
}


def is_ours(name: str) -> bool:
    return name.startswith(OURS)


def amount(value: float, _position: int = 0) -> str:
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if abs(value) >= size:
            return f"{value / size:g} {unit}"
    return f"{value:g}"


def where(cost: Cost) -> str:
    return f"Linux {cost.kernel}, ext4 on NVMe, instructions counted in QEMU, median of {cost.runs} runs"


def by_way(cost: Cost) -> Figure:
    """All ways twice: on a scale for all, and on one for ours."""
    ways = [way for way in cost.size(SHOWN).ways.values()
            if way.figures and not way.name.startswith(PARTS)]
    ways.sort(key=lambda way: -way.figures["total"].median)
    names = [way.name for way in ways]
    ours = {name for name in names if is_ours(name)}
    figure = Figure(figsize=(10, 0.24 * len(ways) + 2.05))
    height = figure.get_figheight()
    whole, near = figure.subplots(1, 2, sharey=True, gridspec_kw={
        "left": 0.29, "right": 0.985, "top": 1 - 1.0 / height, "bottom": 0.76 / height,
        "wspace": 0.08})
    for axes in (whole, near):
        style.bars(axes, names, ours)
        axes.xaxis.set_major_formatter(FuncFormatter(amount))
        axes.set_xlabel("instructions per MiB")
    whole.set_xlim(0, 1.2 * ways[0].figures["total"].median)
    near.set_xlim(0, _near(ways))
    for axes in (whole, near):
        _stack(axes, ways)
    for row, way in enumerate(ways):
        style.beside(whole, way.figures["total"].median, row, f"{way.figures['total'].median:,.0f}")
    _beyond(near, ways)
    whole.set_title("in all", loc="left")
    near.set_title("left ends, enlarged; numbers: I/O alone", loc="left")
    style.legend(figure, [tuple(Patch(color=colour) for colour in pair)
                          for pair in zip(OURS_PARTS, OTHERS_PARTS)], [name for name, _ in STACK])
    style.title(figure, "What loading a file costs the CPU: from no buffer to a freed one",
                "Instructions per MiB of a 128 MiB file; shorter is better. Blue: by the module or the patches; "
                "grey: without them.", where(cost))
    return figure


def _parts(way: Way) -> list[float]:
    return [max(0.0, sum(way.figures[phase].median for phase in phases if phase in way.figures))
            for _, phases in STACK]


def _stack(axes: Axes, ways: list[Way]) -> None:
    """Stacks the parts of each way, cut at the end of the axes."""
    end = axes.get_xlim()[1]
    for colours, of_ours in ((OURS_PARTS, True), (OTHERS_PARTS, False)):
        rows = [row for row, way in enumerate(ways) if is_ours(way.name) is of_ours]
        left = [0.0] * len(rows)
        for part, colour in enumerate(colours):
            widths = [_parts(ways[row])[part] for row in rows]
            shown = [bar for bar in zip(rows, widths, left) if bar[1] > 0 and bar[2] < end]
            if shown:
                axes.barh([bar[0] for bar in shown], [bar[1] for bar in shown],
                          left=[bar[2] for bar in shown], color=colour, height=0.72)
            left = [start + width for start, width in zip(left, widths)]


def _near(ways: list[Way]) -> float:
    """The scale for our ways that allocate and read in one call without zeroing."""
    return 1.35 * max(way.figures["total"].median for way in ways
                      if is_ours(way.name) and "load" in way.figures and way.zeroed == 0)


def _beyond(axes: Axes, ways: list[Way]) -> None:
    """Labels bars that exceed the axes with their total and the share of I/O."""
    end = axes.get_xlim()[1]
    further = [row for row, way in enumerate(ways) if way.figures["total"].median > end]
    axes.plot([end] * len(further), further, marker=">", markersize=6, linestyle="none",
              color=style.TEXT, markeredgewidth=0, clip_on=False)
    for row, way in enumerate(ways):
        io = _parts(way)[0]
        if io < end:
            axes.annotate(f"{io:,.0f}", (io, row), xytext=(-3, 0), textcoords="offset points",
                          ha="right", va="center", fontsize=style.SMALL, color=style.PAGE)


def by_size(cost: Cost) -> Figure:
    """Total cost by file size."""
    sizes = [size for size in cost.sizes if size.per == "MiB" and size.ways]
    names = [name for name in LINES
             if all(name in size.ways and size.ways[name].figures for size in sizes)]
    figure = Figure(figsize=(10, 4.4))
    axes = figure.subplots(gridspec_kw={"left": 0.095, "right": 0.62, "top": 0.85, "bottom": 0.12})
    axes.set(xscale="log", yscale="log", xlabel="size of the file", ylabel="instructions per MiB")
    axes.set_xticks([size.bytes for size in sizes], [size.name for size in sizes])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(FuncFormatter(amount))
    axes.grid(axis="y", linewidth=0.8)
    ends = [sizes[-1].ways[name].figures["total"].median for name in names]
    colours = [LINES[name] for name in names]
    for name, colour in zip(names, colours):
        totals = [size.ways[name].figures["total"] for size in sizes]
        axes.plot([size.bytes for size in sizes], [total.median for total in totals], marker="o",
                  color=colour, linewidth=2.4 if is_ours(name) else 1.5)
    axes.set_ylim(bottom=0.5 * min(ends))
    low, high = axes.get_ylim()
    places = [math.log(value / low) / math.log(high / low) for value in ends]
    style.names_of_lines(axes, places, [f"{name}: {value:,.0f}" for name, value in zip(names, ends)],
                         colours, [is_ours(name) for name in names])
    style.title(figure, "What loading a file costs the CPU, by its size",
                f"Lower is better. From no buffer to a freed one. {where(cost)}")
    return figure
