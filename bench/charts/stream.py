# SPDX-License-Identifier: MIT OR Apache-2.0
"""CPU cost of a MiB of samples, by block size."""

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from figures.cost import size_name
from figures.stream import Streams

from . import style

SINKS = {"nothing": "into nothing", "file": "into a file", "usb": "into USB"}
# Way, label, colour, width
WAYS = {"read()": ("read(), write()", style.STONE, 1.5),
        "read(), O_DIRECT": ("read(), write() with O_DIRECT", style.VIOLET, 1.5),
        "iio_rwdev": ("libiio's iio_rwdev", style.ORANGE, 1.5),
        "dma-buf": ("dma-buf", style.BLUE, 2.4)}


def cost(streams: Streams) -> Figure:
    """Instructions per MiB: a panel for each sink, a line for each way."""
    sinks = streams.sinks()
    figure = Figure(figsize=(10, 4.4))
    panels = figure.subplots(1, len(sinks), sharey=True, squeeze=False,
                             gridspec_kw={"left": 0.09, "right": 0.985, "top": 0.81,
                                          "bottom": 0.21, "wspace": 0.08})[0]
    known = {}
    for axes, to in zip(panels, sinks):
        ways = streams.ways(to)
        sizes = sorted({row.block for rows in ways.values() for row in rows})
        axes.set(yscale="log", xlabel="block size")
        axes.set_title(SINKS[to], loc="left")
        axes.minorticks_off()
        axes.yaxis.set_major_formatter(FuncFormatter(_short))
        axes.set_xticks(range(len(sizes)), [size_name(size).replace(" ", "\n") for size in sizes])
        axes.grid(axis="y", linewidth=0.8)
        for way, rows in ways.items():
            name, colour, width = WAYS[way]
            places = [sizes.index(row.block) for row in rows]
            known[name], = axes.plot(places, [row.per_mib.median for row in rows], marker="o",
                                     color=colour, linewidth=width)
    panels[0].set_ylabel("instructions per MiB of samples")
    names = [name for name, *_ in WAYS.values() if name in known]
    style.legend(figure, [known[name] for name in names], names)
    runs = f"{streams.runs} runs" if streams.runs > 1 else "1 run"
    style.title(figure, "What samples of an IIO device cost the CPU",
                "Lower is better. All that the CPU did; the simulated device does next to nothing. "
                f"Linux {streams.kernel}, ext4 on NVMe, {runs} of {size_name(streams.total)}")
    return figure


def _short(value: float, _position: int) -> str:
    return f"{value / 1e6:g} M" if value >= 1e6 else f"{value / 1e3:g} k"
