# SPDX-License-Identifier: MIT OR Apache-2.0
"""The chart of the soak: memory that was available while the same was done again and again."""

import re

from matplotlib.figure import Figure

from . import style

LOOK = re.compile(r"^look (\w+) done=(\d+) seconds=([\d.]+) available=(\d+) slab=(\d+)", re.M)
PARTS = {"transfers": "GiB moved", "gathers": "small reads", "loads": "loads into new dma-bufs"}


def draw(log: str) -> Figure:
    """A panel for each part: available memory and slabs, in MiB, by what was done."""
    looks = LOOK.findall(log)
    figure = Figure(figsize=(10, 3.6))
    panels = figure.subplots(1, len(PARTS), sharey=True, gridspec_kw={"left": 0.07, "right": 0.985, "top": 0.76, "bottom": 0.22, "wspace": 0.08})
    for axes, (part, name) in zip(panels, PARTS.items()):
        rows = [[int(done), int(available) >> 20, int(slab) >> 20] for which, done, _, available, slab in looks if which == part]
        done, available, slab = zip(*rows)
        axes.set_title(name, loc="left")
        axes.set(ylim=(0, 2048), xlim=(0, max(done)))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1e6:g} M" if value >= 1e5 else f"{value:,.0f}")
        axes.locator_params(axis="x", nbins=4)
        axes.grid(axis="y", linewidth=0.8)
        memory, = axes.plot(done, available, color=style.BLUE, linewidth=2)
        kernel, = axes.plot(done, slab, color=style.ORANGE, linewidth=2)
    panels[0].set_ylabel("MiB")
    style.legend(figure, [memory, kernel], ["available memory", "slabs of the kernel that stay"])
    style.title(figure, "Memory during the soak",
                "Flat is good. A guest with 2 GiB, Debian's Linux 7.3; caches are dropped before each look. "
                "Transfers hold 128 MiB of buffers.")
    return figure
