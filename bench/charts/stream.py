# SPDX-License-Identifier: MIT OR Apache-2.0
"""What a MiB of samples costs the CPU, by the size of a block."""

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from figures.cost import size_name
from figures.stream import Streams

from . import style
from .style import Theme

SINKS = {"nothing": "into nothing", "file": "into a file", "usb": "into USB"}
# Way, how it is called, colour, width
WAYS = {"read()": ("read(), write()", 6, 1.5),
        "read(), O_DIRECT": ("the same, O_DIRECT", 3, 1.5),
        "dma-buf": ("dma-buf", 0, 2.4)}


def cost(streams: Streams, theme: Theme) -> Figure:
    """Instructions per MiB: a panel for each sink, a line for each way."""
    sinks = streams.sinks()
    figure = Figure(figsize=(10, 4.4))
    panels = figure.subplots(1, len(sinks), sharey=True, squeeze=False,
                             gridspec_kw={"left": 0.09, "right": 0.99, "top": 0.80,
                                          "bottom": 0.13, "wspace": 0.08})[0]
    for axes, to in zip(panels, sinks):
        ways = streams.ways(to)
        sizes = sorted({row.block for rows in ways.values() for row in rows})
        axes.set(yscale="log", xlabel="size of a block")
        axes.set_title(SINKS[to], fontsize=10, loc="left")
        axes.yaxis.set_major_formatter(FuncFormatter(_short))
        axes.set_xticks(range(len(sizes)), [size_name(size).replace("iB", "") for size in sizes])
        axes.grid(axis="y", linewidth=0.8)
        for way, rows in ways.items():
            name, colour, width = WAYS[way]
            places = [sizes.index(row.block) for row in rows]
            costs = [row.per_mib["median"] for row in rows]
            axes.plot(places, costs, marker="o", color=theme.lines[colour], linewidth=width,
                      label=name)
    panels[0].set_ylabel("instructions per MiB of samples")
    if "file" in sinks:
        panels[sinks.index("file")].legend(frameon=False, fontsize=9, labelcolor=theme.text)
    runs = f"{streams.runs} runs" if streams.runs > 1 else "1 run"
    style.title(figure, theme, "Samples of an IIO device: what they cost the CPU",
                f"Linux {streams.kernel}, ext4 on NVMe, {runs} of {size_name(streams.total)}; "
                "all that the CPU did, the device simulated and frugal; lower is better")
    return figure


def _short(value: float, _position: int) -> str:
    return f"{value / 1e6:g} M" if value >= 1e6 else f"{value / 1e3:g} k"
