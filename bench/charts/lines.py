# SPDX-License-Identifier: MIT OR Apache-2.0
"""Charts with a line for each way, by size or rate."""

import math
from collections.abc import Callable, Iterable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter

from figures import small as reads
from figures import streams
from figures.results import MIB, Result, size_name

from . import bars, style

COST = {
    "module: LOAD": style.BLUE,
    "series: heap flag": style.ORANGE,
    "malloc: read()": style.TEAL,
    "memfd, faulted in: io_uring 1 MiB x 8": style.VIOLET,
    "library: module": style.AZURE,
    "heap: read() into the mapping": style.OCHRE,
    "memfd: read()": style.STONE,
}
LOAD = {
    "sendfile direct": style.STONE,
    "udmabuf direct": style.VIOLET,
    "LOAD module buffer": style.AZURE,
    "LOAD heap direct": style.OCHRE,
    "LOAD heap direct, gather": style.ORANGE,
    "LOAD module direct": style.TEAL,
    "LOAD module direct, gather": style.BLUE,
}
TIMES = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8, 16)
# Way, label, colour, width: the last is drawn over the others.
STREAM = {"read()": ("read(), write()", style.STONE, 1.5),
          "read(), O_DIRECT": ("read(), write() with O_DIRECT", style.VIOLET, 1.5),
          "iio_rwdev": ("libiio's iio_rwdev", style.ORANGE, 1.5),
          "dma-buf": ("dma-buf", style.BLUE, 2.4)}
RATES = {"read()": ("read(), write()", style.STONE, 4.0),
         "iio_rwdev": ("iio_rwdev, its defaults", style.ORANGE, 3.0),
         "iio_rwdev -b": ("iio_rwdev, blocks of read()", style.TEAL, 2.2),
         "dmabuf-dio": ("dmabuf-dio capture", style.BLUE, 1.4)}
# Lent pages cost the same as registered memory, whose line is therefore wider, to remain visible behind the other.
SMALL = {
    "libaio, user": ("libaio", style.STONE, 1.5),
    "io_uring, user": ("io_uring", style.OCHRE, 1.5),
    "io_uring, registered": ("io_uring, registered memory", style.ORANGE, 6),
    "io_uring, lent": ("io_uring, lent pages", style.AZURE, 2.4),
    "gather": ("gather, lent pages", style.BLUE, 2.4),
}
TARGETS = {"xfs": "XFS", "raw": "raw device"}
# Shares up to this are shown on a linear scale, which has a zero.
LINEAR = 1e-4


def _runs(found: Result) -> str:
    return f"{found.runs} runs" if found.runs > 1 else "1 run"


def _times(value: float, _position: int = 0) -> str:
    return f"{value:.2g} ×"


def _plain(axes: Axes, show: Callable[[float, int], str]) -> None:
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(FuncFormatter(show))
    axes.grid(axis="y", linewidth=0.8)


def _name_ends(axes: Axes, ends: Iterable[tuple[str, float, str, bool]], show: Callable[[float], str]) -> None:
    """The names of lines beside their last values; bold ones are emphasised."""
    low, high = axes.get_ylim()
    names, values, colours, bold = zip(*ends)
    places = style.apart([math.log(value / low) / math.log(high / low) for value in values], 0.055)
    for place, name, value, colour, heavy in zip(places, names, values, colours, bold):
        axes.annotate(f"{name}: {show(value)}", (1.0, place), xycoords="axes fraction", xytext=(8, 0), textcoords="offset points",
                      va="center", fontsize=9, color=colour, weight="bold" if heavy else "normal")


def cost(found: Result) -> Figure:
    """Total cost by file size."""
    sizes = [size for size in found.each("size") if size >= MIB]
    totals = {way: [row.total.median for size in sizes for row in found.where(size=size, way=way)] for way in COST}
    totals = {way: values for way, values in totals.items() if len(values) == len(sizes)}
    figure = Figure(figsize=(10, 4.4))
    axes = figure.subplots(gridspec_kw={"left": 0.095, "right": 0.62, "top": 0.85, "bottom": 0.12})
    axes.set(xscale="log", yscale="log", xlabel="size of the file", ylabel="instructions per MiB")
    axes.set_xticks(sizes, map(size_name, sizes))
    _plain(axes, style.amount)
    for way, values in totals.items():
        axes.plot(sizes, values, marker="o", color=COST[way], linewidth=2.4 if bars.is_ours(way) else 1.5)
    axes.set_ylim(bottom=0.5 * min(values[-1] for values in totals.values()))
    _name_ends(axes, ((way, values[-1], COST[way], bars.is_ours(way)) for way, values in totals.items()), "{:,.0f}".format)
    style.title(figure, "What loading a file costs the CPU, by its size",
                f"Lower is better. From no buffer to a freed one. {bars.where(found)}")
    return figure


def relative(found: Result, way: str) -> list[tuple[int, float]]:
    """The place of each size at which there is one, and the time relative to normal."""
    sizes = found.each("size", way="normal")
    return [(place, row.total_ms.median / found.row(size=size, way="normal").total_ms.median)
            for place, size in enumerate(sizes) for row in found.where(size=size, way=way)]


def load(found: Result) -> Figure:
    """LOAD compared with allocation followed by reading, by size."""
    sizes = found.each("size", way="normal")
    figure = Figure(figsize=(10, 4.6))
    axes = figure.subplots(gridspec_kw={"left": 0.09, "right": 0.69, "top": 0.86, "bottom": 0.12})
    axes.set(yscale="log", xlabel="size of the file", ylabel="time relative to “normal”")
    axes.yaxis.set_major_locator(FixedLocator(TIMES))
    _plain(axes, _times)
    axes.set_xticks(range(len(sizes)), map(size_name, sizes))
    axes.axhline(1, color=style.TEXT, linewidth=1.2, linestyle=(0, (5, 3)))
    ends = [("normal: allocate, map, read()", 1.0, style.TEXT, False)]
    for way, colour in LOAD.items():
        if shown := relative(found, way):
            axes.plot(*zip(*shown), marker="o", color=colour, linewidth=2.4 if "gather" in way else 1.5)
            ends.append((way, shown[-1][1], colour, "gather" in way))
    _name_ends(axes, ends, _times)
    style.title(figure, "Loading a file into a new dma-buf: time relative to allocating, then reading",
                "Lower is faster. An emulated machine: compare within one size only. "
                f"Linux {found.kernel} with the patch series, ext4 on NVMe, {_runs(found)}")
    return figure


def _panels(height: float, titles: Sequence[str], across: str, up: str, show: Callable[[float, int], str],
            scale: dict[str, object], **places: float) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(10, height))
    panels = figure.subplots(1, len(titles), sharey=True, squeeze=False, gridspec_kw={"right": 0.985, **places})[0]
    for axes, title in zip(panels, titles):
        axes.set_yscale(**scale)
        axes.set_xlabel(across)
        axes.set_title(title, loc="left")
        _plain(axes, show)
    panels[0].set_ylabel(up)
    return figure, panels


def _lines(figure: Figure, panels: Sequence[Axes], ways: dict[str, tuple[str, str, float]],
           points: Sequence[dict[str, list[tuple[int, float]]]], size: Callable[[float], float] = lambda _: 6) -> None:
    """Draws the points of each panel, by way, and one legend."""
    known = {}
    for axes, of_panel in zip(panels, points):
        for way, drawn in of_panel.items():
            if drawn:
                name, colour, width = ways[way]
                known[name], = axes.plot(*zip(*drawn), marker="o", markersize=size(width), color=colour, linewidth=width)
    names = [name for name, *_ in ways.values() if name in known]
    style.legend(figure, [known[name] for name in names], names)


def stream(found: Result) -> Figure:
    """Instructions per MiB by block size: a panel for each sink."""
    sinks = found.each("to")
    figure, panels = _panels(4.4, [streams.SINKS[to] for to in sinks], "block size", "instructions per MiB of samples",
                             lambda value, _: f"{value / 1e6:g} M" if value >= 1e6 else f"{value / 1e3:g} k", {"value": "log"},
                             left=0.09, top=0.81, bottom=0.21, wspace=0.08)
    points = []
    for axes, to in zip(panels, sinks):
        sizes = sorted(found.each("block", to=to))
        axes.set_xticks(range(len(sizes)), [size_name(size).replace(" ", "\n") for size in sizes])
        points.append({way: [(sizes.index(row.block), row.per_mib.median) for row in found.where(to=to, way=way)]
                       for way in found.each("way", to=to)})
    _lines(figure, panels, STREAM, points)
    style.title(figure, "What samples of an IIO device cost the CPU",
                "Lower is better. All that the CPU did; the simulated device does next to nothing. "
                f"Linux {found.kernel}, ext4 on NVMe, {_runs(found)} of {size_name(found.total)}")
    return figure


def rates(found: Result) -> Figure:
    """The share of lost frames by rate: a panel for each load."""
    loads, places = found.each("load"), sorted(found.each("rate"))
    figure, panels = _panels(4.4, [streams.LOADS[load] for load in loads], "MB/s", "lost frames", lambda value, _: f"{value * 100:g} %",
                             {"value": "symlog", "linthresh": LINEAR}, left=0.08, top=0.79, bottom=0.22, wspace=0.06)
    for axes in panels:
        axes.set(ylim=(-0.3 * LINEAR, 1.3), yticks=[0, 1e-4, 1e-3, 1e-2, 1e-1, 1])
        axes.set_xticks(range(len(places)), [f"{rate * found.frame / 1e6:g}" for rate in places])
        axes.minorticks_off()
    _lines(figure, panels, RATES, [{way: [(places.index(row.rate), streams.share(row)) for row in found.where(load=load, way=way)]
                                    for way in RATES} for load in loads])
    style.title(figure, "Frames of an IIO device that do not get into a file",
                "Lower is better; lines at 0 lie upon each other. Every frame written by the simulated device.",
                f"Linux {found.kernel}, {found.cpus} CPUs, ext4 on NVMe; {found.seconds} s for each point")
    return figure


def small(found: Result) -> Figure:
    """Instructions of a small random read, by reads in flight: a panel for each target."""
    targets = found.each("target")
    figure, panels = _panels(4.2, [TARGETS.get(target, target) for target in targets], "reads in flight", "instructions per read",
                             lambda value, _: f"{value:,.0f}", {"value": "linear"}, left=0.085, top=0.80, bottom=0.18, wspace=0.1)
    # With one read in flight, waking up dominates the cost.
    depths = [depth for depth in found.each("depth") if depth > 1]
    for axes in panels:
        axes.set_xticks(range(len(depths)), map(str, depths))
    lines = reads.points(found)
    points = [{name: [(place, rows[depth].per_read.median) for place, depth in enumerate(depths) if depth in rows]
               for name in SMALL for rows in [lines.get((target, name), {})]} for target in targets]
    _lines(figure, panels, SMALL, points, lambda width: max(5, width))
    panels[0].set_ylim(bottom=0)
    style.title(figure, "What a random direct read of 4 KiB costs the CPU",
                f"Lower is better. All that the CPU did. Linux {found.kernel} with the patch series, "
                f"NVMe, {found.runs} runs of {found.reads:,} reads")
    return figure
