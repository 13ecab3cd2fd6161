# SPDX-License-Identifier: MIT OR Apache-2.0
"""Frames lost on the way into a file, by rate."""

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from figures.rates import LOADS, Rates

from . import style

# Way, label, colour, width: the last is drawn over the others.
WAYS = {"read()": ("read(), write()", style.STONE, 4.0),
        "iio_rwdev": ("iio_rwdev, its defaults", style.ORANGE, 3.0),
        "iio_rwdev -b": ("iio_rwdev, blocks of read()", style.TEAL, 2.2),
        "dmabuf-dio": ("dmabuf-dio capture", style.BLUE, 1.4)}
# Shares up to this are shown on a linear scale, which has a zero.
LINEAR = 1e-4


def lost(rates: Rates) -> Figure:
    """The share of lost frames: a panel for each load, a line for each way."""
    loads = rates.loads()
    figure = Figure(figsize=(10, 4.4))
    panels = figure.subplots(1, len(loads), sharey=True, squeeze=False,
                             gridspec_kw={"left": 0.08, "right": 0.985, "top": 0.79,
                                          "bottom": 0.22, "wspace": 0.06})[0]
    known, places = {}, rates.rates()
    for axes, load in zip(panels, loads):
        axes.set_yscale("symlog", linthresh=LINEAR)
        axes.set(xlabel="MB/s", ylim=(-0.3 * LINEAR, 1.3))
        axes.set_title(LOADS[load], loc="left")
        axes.set_yticks([0, 1e-4, 1e-3, 1e-2, 1e-1, 1])
        axes.minorticks_off()
        axes.yaxis.set_major_formatter(FuncFormatter(_percent))
        axes.set_xticks(range(len(places)), [f"{rate * rates.frame / 1e6:g}" for rate in places])
        axes.grid(axis="y", linewidth=0.8)
        for way, (name, colour, width) in WAYS.items():
            if rows := rates.of(load, way):
                known[name], = axes.plot([places.index(row.rate) for row in rows], [row.share for row in rows],
                                         marker="o", color=colour, linewidth=width)
    panels[0].set_ylabel("lost frames")
    names = [name for name, *_ in WAYS.values() if name in known]
    style.legend(figure, [known[name] for name in names], names)
    style.title(figure, "Frames of an IIO device that do not get into a file",
                "Lower is better; lines at 0 lie upon each other. Every frame written by the simulated device.",
                f"Linux {rates.kernel}, {rates.cpus} CPUs, ext4 on NVMe; {rates.seconds} s for each point")
    return figure


def _percent(value: float, _position: int) -> str:
    return f"{value * 100:g} %"
