# SPDX-License-Identifier: MIT OR Apache-2.0
"""Speed of the ways on a real disk."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.compare import Compare, Size
from figures.cost import size_name

from . import style

MOST_PANELS = 3
SMALL = 8 << 20
# Share of a panel's width to the right of its longest bar, for figures
COLUMN = 0.07


def speed(compare: Compare) -> Figure:
    """GB/s by way, for the largest sizes, with the disk's maximum."""
    return _speed(compare, [size for size in compare.sizes if size.ways][-MOST_PANELS:])


def small(compare: Compare) -> Figure:
    """The same for the smallest files."""
    sizes = [size for size in compare.sizes if size.ways]
    return _speed(compare, [size for size in sizes if size.bytes <= SMALL] or sizes[:1])


def _speed(compare: Compare, sizes: list[Size]) -> Figure:
    fastest = {way.name: way.speed.median for way in sizes[-1].ways}
    names = [way.name for size in sizes for way in size.ways]
    names = sorted(dict.fromkeys(names), key=lambda name: -fastest.get(name, 0.0))
    ours = {way.name for size in sizes for way in size.ways if way.is_ours}
    figure = Figure(figsize=(10, 0.24 * len(names) + 1.62))
    height = figure.get_figheight()
    panels = figure.subplots(1, len(sizes), sharey=True, squeeze=False, gridspec_kw={
        "left": 0.28, "right": 0.99, "top": 1 - 1.02 / height, "bottom": 0.50 / height,
        "wspace": 0.11})[0]
    for axes, size in zip(panels, sizes):
        style.bars(axes, names, ours)
        _panel(axes, size, names, COLUMN * len(sizes))
    files = "a file" if compare.processes == 1 else f"{compare.processes} files at once, each"
    ceiling = any(size.ceiling for size in sizes)
    style.title(figure, f"Loading {files} of {compare.tensors} tensors: from its path to all bytes "
                "in memory",
                "Longer is faster; blue: dmabuf-dio. Bar: median; thin line: slowest to fastest run."
                + (" Dashed: fio at its fastest, what the disk can do." if ceiling else ""),
                f"Page cache empty. Linux {compare.kernel}, {compare.machine}")
    return figure


def _panel(axes: Axes, size: Size, names: list[str], column: float) -> None:
    rows = [names.index(way.name) for way in size.ways]
    for is_ours, colour in ((True, style.BLUE), (False, style.ASH)):
        shown = [(row, way.speed.median) for row, way in zip(rows, size.ways) if way.is_ours is is_ours]
        if shown:
            axes.barh(*zip(*shown), height=0.72, color=colour)
    ranges = [[way.speed.min for way in size.ways], [way.speed.max for way in size.ways]]
    # On the colour of the page, to be readable on dark bars
    for colour, width in ((style.PAGE, 3), (style.TEXT, 1)):
        axes.hlines(rows, *ranges, color=colour, linewidth=width)
    most = max(*ranges[1], size.ceiling or 0.0) * 1.04
    axes.set_xlim(0, most / (1 - column))
    axes.set_xticks([tick for tick in axes.get_xticks() if tick <= most])
    axes.set_xlabel("GB/s")
    axes.set_title(f"{size_name(size.bytes)}, {size.runs} runs", loc="left")
    if size.ceiling:
        axes.axvline(size.ceiling, color=style.TEXT, linewidth=1.2, linestyle=(0, (5, 3)))
    across = axes.get_yaxis_transform()
    axes.text(1, -0.9, "of fio" if size.ceiling else "GB/s", transform=across, ha="right",
              fontsize=style.SMALL, color=style.QUIET)
    for row, way in zip(rows, size.ways):
        value = f"{way.speed.median / size.ceiling:.0%}" if size.ceiling else f"{way.speed.median:.2f}"
        axes.text(1, row, value, transform=across, ha="right", va="center", fontsize=style.SMALL)
    for row in set(range(len(names))).difference(rows):
        axes.text(1, row, "not run", transform=across, ha="right", va="center",
                  fontsize=style.SMALL, color=style.QUIET)
