# SPDX-License-Identifier: MIT OR Apache-2.0
"""Speed of the ways on a real disk."""

from matplotlib.figure import Figure

from figures.compare import Compare, Size
from figures.cost import size_name

from . import style
from .style import Theme

MOST_PANELS = 3
SMALL = 8 << 20


def speed(compare: Compare, theme: Theme) -> Figure:
    """GB/s by way, for the largest sizes, with what the disk can do."""
    return _speed(compare, [size for size in compare.sizes if size.ways][-MOST_PANELS:], theme)


def small(compare: Compare, theme: Theme) -> Figure:
    """The same for small files, or the smallest there are."""
    sizes = [size for size in compare.sizes if size.ways]
    return _speed(compare, [size for size in sizes if size.bytes <= SMALL] or sizes[:1], theme)


def _speed(compare: Compare, sizes: list[Size], theme: Theme) -> Figure:
    fastest = {way.name: way.speed for way in sizes[-1].ways}
    names = [way.name for size in sizes for way in size.ways]
    names = sorted(dict.fromkeys(names), key=lambda name: -fastest.get(name, 0.0))
    ours = {way.name for size in sizes for way in size.ways if way.is_ours}
    figure = Figure(figsize=(10, 0.30 * len(names) + 1.75))
    height = figure.get_figheight()
    panels = figure.subplots(1, len(sizes), sharey=True, squeeze=False, gridspec_kw={
        "left": 0.285, "right": 0.985, "top": 1 - 0.98 / height, "bottom": 0.52 / height,
        "wspace": 0.08})[0]
    for axes, size in zip(panels, sizes):
        style.bars(axes, names, ours, theme)
        for way in size.ways:
            row = names.index(way.name)
            colour = theme.ours[0] if way.is_ours else theme.others[1]
            axes.barh(row, way.speed, height=0.72, color=colour)
            axes.plot([way.min, way.max], [row, row], color=theme.text, linewidth=1)
            share = f" {way.speed / size.ceiling:.0%}" if size.ceiling else f" {way.speed:.2f}"
            axes.text(max(way.speed, way.max), row, share, va="center", fontsize=8,
                      bbox={"facecolor": theme.page, "edgecolor": "none", "pad": 1})
        most = max([way.max for way in size.ways] + [size.ceiling or 0.0])
        axes.set_xlim(0, 1.2 * most)
        axes.set_xlabel("GB/s")
        axes.set_title(f"{size_name(size.bytes)}, {size.runs} runs", fontsize=10, loc="left",
                       color=theme.quiet)
        if size.ceiling:
            axes.axvline(size.ceiling, color=theme.text, linewidth=1.2, linestyle=(0, (5, 3)))
    files = "A file" if compare.processes == 1 else f"{compare.processes} files at once, each"
    style.title(figure, theme, f"{files} of {compare.tensors} tensors, from its path to all bytes in memory",
                f"Page cache empty; Linux {compare.kernel}, {compare.machine}; dashed: what fio gets from the disk, "
                "percent: of that; line: min to max")
    return figure
