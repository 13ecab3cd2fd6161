# SPDX-License-Identifier: MIT OR Apache-2.0
"""LOAD compared with allocation followed by reading."""

import math

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter

from figures.cost import size_name
from figures.load import Load

from . import style

SCHEMES = {
    "sendfile direct": style.STONE,
    "udmabuf direct": style.VIOLET,
    "LOAD module buffer": style.AZURE,
    "LOAD heap direct": style.OCHRE,
    "LOAD heap direct, gather": style.ORANGE,
    "LOAD module direct": style.TEAL,
    "LOAD module direct, gather": style.BLUE,
}
TIMES = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8, 16)


def relative(load: Load) -> Figure:
    """Time relative to normal, by size."""
    sizes = [size for size in load.sizes if size.total]
    figure = Figure(figsize=(10, 4.6))
    axes = figure.subplots(gridspec_kw={"left": 0.09, "right": 0.69, "top": 0.86, "bottom": 0.12})
    axes.set(yscale="log", xlabel="size of the file", ylabel="time relative to “normal”")
    axes.minorticks_off()
    axes.yaxis.set_major_locator(FixedLocator(TIMES))
    axes.yaxis.set_major_formatter(FuncFormatter(_times))
    axes.set_xticks(range(len(sizes)), [size_name(size.bytes) for size in sizes])
    axes.grid(axis="y", linewidth=0.8)
    axes.axhline(1, color=style.TEXT, linewidth=1.2, linestyle=(0, (5, 3)))
    ends = [("normal: allocate, map, read()", style.TEXT, 1.0)]
    for scheme, colour in SCHEMES.items():
        times = [size.relative(scheme) for size in sizes]
        shown = [(place, time) for place, time in enumerate(times) if time is not None]
        if not shown:
            continue
        axes.plot(*zip(*shown), marker="o", color=colour,
                  linewidth=2.4 if "gather" in scheme else 1.5)
        ends.append((scheme, colour, shown[-1][1]))
    low, high = axes.get_ylim()
    names, colours, times = zip(*ends)
    style.names_of_lines(axes, [math.log(time / low) / math.log(high / low) for time in times],
                         [f"{name}: {_times(time)}" for name, time in zip(names, times)], colours,
                         ["gather" in name for name in names])
    runs = f"{load.runs} runs" if load.runs > 1 else "1 run"
    style.title(figure, "Loading a file into a new dma-buf: time relative to allocating, then reading",
                "Lower is faster. An emulated machine: compare within one size only. "
                f"Linux {load.kernel} with the patch series, ext4 on NVMe, {runs}")
    return figure


def _times(value: float, _position: int = 0) -> str:
    return f"{value:.2g} ×"
