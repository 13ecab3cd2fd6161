# SPDX-License-Identifier: MIT OR Apache-2.0
"""Charts with a bar for each way: what it costs the CPU, and its speed on a real disk."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from figures.cost import SHOWN
from figures.results import MIB, Result, Row, Summary, size_name, summary

from . import style

# Parts of other ways
PARTS = ("heap: allocate", "module: attach")
OURS = ("module:", "series:", "library: module", "library: slot", "library: heap", "library: copy_file_range")
# I/O comes first, for comparison; the work done once per buffer comes last.
STACK = (("I/O, or allocation and I/O in one call", ("io", "load")),
         ("close", ("close",)), ("allocation", ("allocation",)))
OURS_PARTS = (style.BLUE, style.SKY, style.ICE)
OTHERS_PARTS = (style.STONE, style.ASH, style.MIST)

MOST_PANELS = 3
SMALL = 8 * MIB
# Share of a panel's width to the right of its longest bar, for figures
COLUMN = 0.07


def is_ours(way: str) -> bool:
    return way.startswith(OURS)


def where(found: Result) -> str:
    return f"Linux {found.kernel}, ext4 on NVMe, instructions counted in QEMU, median of {found.runs} runs"


def cost(found: Result) -> Figure:
    """All ways twice: on a scale for all, and on one for ours."""
    rows = [row for row in found.where(size=SHOWN) if not row.way.startswith(PARTS)]
    rows.sort(key=lambda row: -row.total.median)
    names = [row.way for row in rows]
    figure = Figure(figsize=(10, 0.24 * len(rows) + 2.05))
    height = figure.get_figheight()
    whole, near = figure.subplots(1, 2, sharey=True, gridspec_kw={
        "left": 0.29, "right": 0.985, "top": 1 - 1.0 / height, "bottom": 0.76 / height, "wspace": 0.08})
    for axes in (whole, near):
        style.bars(axes, names, {name for name in names if is_ours(name)})
        axes.xaxis.set_major_formatter(FuncFormatter(style.amount))
        axes.set_xlabel("instructions per MiB")
    whole.set_xlim(0, 1.2 * rows[0].total.median)
    # The scale for our ways that allocate and read in one call without zeroing
    near.set_xlim(0, 1.35 * max(row.total.median for row in rows if is_ours(row.way) and "load" in row.figures and row.zeroed == 0))
    for axes in (whole, near):
        _stack(axes, rows)
    for place, row in enumerate(rows):
        whole.annotate(f"{row.total.median:,.0f}", (row.total.median, place), xytext=(4, 0), textcoords="offset points", va="center",
                       fontsize=style.SMALL)
    _beyond(near, rows)
    whole.set_title("in all", loc="left")
    near.set_title("left ends, enlarged; numbers: I/O alone", loc="left")
    style.legend(figure, [tuple(Patch(color=colour) for colour in pair) for pair in zip(OURS_PARTS, OTHERS_PARTS)],
                 [name for name, _ in STACK])
    style.title(figure, "What loading a file costs the CPU: from no buffer to a freed one",
                "Instructions per MiB of a 128 MiB file; shorter is better. Blue: by the module or the patches; "
                "grey: without them.", where(found))
    return figure


def _parts(row: Row) -> list[float]:
    return [max(0.0, sum(row.figures[phase].median for phase in phases if phase in row.figures)) for _, phases in STACK]


def _stack(axes: Axes, rows: list[Row]) -> None:
    """Stacks the parts of each way, cut at the end of the axes."""
    end = axes.get_xlim()[1]
    for colours, of_ours in ((OURS_PARTS, True), (OTHERS_PARTS, False)):
        parts = {place: _parts(row) for place, row in enumerate(rows) if is_ours(row.way) is of_ours}
        for part, colour in enumerate(colours):
            shown = [(place, widths[part], sum(widths[:part])) for place, widths in parts.items()
                     if widths[part] > 0 and sum(widths[:part]) < end]
            if shown:
                places, widths, left = zip(*shown)
                axes.barh(places, widths, left=left, color=colour, height=0.72)


def _beyond(axes: Axes, rows: list[Row]) -> None:
    """Labels bars that exceed the axes with their total and the share of I/O."""
    end = axes.get_xlim()[1]
    further = [place for place, row in enumerate(rows) if row.total.median > end]
    axes.plot([end] * len(further), further, marker=">", markersize=6, linestyle="none",
              color=style.TEXT, markeredgewidth=0, clip_on=False)
    for place, row in enumerate(rows):
        io = _parts(row)[0]
        if io < end:
            axes.annotate(f"{io:,.0f}", (io, place), xytext=(-3, 0), textcoords="offset points",
                          ha="right", va="center", fontsize=style.SMALL, color=style.PAGE)


def speeds(found: Result, size: int) -> dict[str, Summary]:
    """GB/s by way."""
    gigabytes = size * found.processes / 1e9
    return {row.way: summary(gigabytes / seconds for seconds in row.data["seconds"]) for row in found.where(size=size)}


def ceiling(ways: dict[str, Summary]) -> float:
    """The disk's maximum, that of the fastest fio into huge pages; 0 if unknown."""
    return max((speed.median for way, speed in ways.items() if way.startswith("fio ") and not way.endswith(", 4 KiB")), default=0.0)


def compare(found: Result) -> Figure:
    """GB/s by way, for the largest sizes, with the disk's maximum."""
    return _compare(found, found.each("size")[-MOST_PANELS:])


def compare_small(found: Result) -> Figure:
    """The same for the smallest files."""
    sizes = found.each("size")
    return _compare(found, [size for size in sizes if size <= SMALL] or sizes[:1])


def _compare(found: Result, sizes: list[int]) -> Figure:
    by_size = [speeds(found, size) for size in sizes]
    names = sorted(dict.fromkeys(way for ways in by_size for way in ways),
                   key=lambda way: -by_size[-1][way].median if way in by_size[-1] else 0.0)
    figure = Figure(figsize=(10, 0.24 * len(names) + 1.62))
    height = figure.get_figheight()
    panels = figure.subplots(1, len(sizes), sharey=True, squeeze=False, gridspec_kw={
        "left": 0.28, "right": 0.99, "top": 1 - 1.02 / height, "bottom": 0.50 / height, "wspace": 0.11})[0]
    for axes, size, ways in zip(panels, sizes, by_size):
        style.bars(axes, names, set(filter(_of_this, names)))
        axes.set_title(f"{size_name(size)}, {found.where(size=size)[0].runs} runs", loc="left")
        _panel(axes, ways, names, COLUMN * len(sizes))
    files = "a file" if found.processes == 1 else f"{found.processes} files at once, each"
    style.title(figure, f"Loading {files} of {found.tensors} tensors: from its path to all bytes in memory",
                "Longer is faster; blue: dmabuf-dio. Bar: median; thin line: slowest to fastest run."
                + (" Dashed: fio at its fastest, what the disk can do." if any(map(ceiling, by_size)) else ""),
                f"Page cache empty. Linux {found.kernel}, {found.cpus} CPUs, {found.file_system} on {found.device}")
    return figure


def _of_this(way: str) -> bool:
    return way.startswith("dmabuf-dio")


def _panel(axes: Axes, ways: dict[str, Summary], names: list[str], column: float) -> None:
    rows, most_of_disk = {names.index(way): speed for way, speed in ways.items()}, ceiling(ways)
    for of_this, colour in ((True, style.BLUE), (False, style.ASH)):
        shown = [(row, speed.median) for row, speed in rows.items() if _of_this(names[row]) is of_this]
        if shown:
            axes.barh(*zip(*shown), height=0.72, color=colour)
    ranges = [[speed.min for speed in rows.values()], [speed.max for speed in rows.values()]]
    # On the colour of the page, to be readable on dark bars
    for colour, width in ((style.PAGE, 3), (style.TEXT, 1)):
        axes.hlines(list(rows), *ranges, color=colour, linewidth=width)
    most = max(*ranges[1], most_of_disk) * 1.04
    axes.set_xlim(0, most / (1 - column))
    axes.set_xticks([tick for tick in axes.get_xticks() if tick <= most])
    axes.set_xlabel("GB/s")
    if most_of_disk:
        axes.axvline(most_of_disk, color=style.TEXT, linewidth=1.2, linestyle=(0, (5, 3)))
    aside = {"transform": axes.get_yaxis_transform(), "ha": "right", "fontsize": style.SMALL}
    axes.text(1, -0.9, "of fio" if most_of_disk else "GB/s", color=style.QUIET, **aside)
    for row, speed in rows.items():
        axes.text(1, row, f"{speed.median / most_of_disk:.0%}" if most_of_disk else f"{speed.median:.2f}", va="center", **aside)
    for row in set(range(len(names))).difference(rows):
        axes.text(1, row, "not run", va="center", color=style.QUIET, **aside)
