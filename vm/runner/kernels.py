# SPDX-License-Identifier: MIT OR Apache-2.0
"""The kernels a guest can run."""

import re
from dataclasses import dataclass
from pathlib import Path

from . import build, prebuilt, vmlinux
from .messages import Failure
from .prebuilt import PREBUILT
from .series import MAPPED_7_3, SERIES_6_12, SERIES_7_3, Series
from .source import LINUX_6_12, LINUX_7_3, Source


@dataclass
class Kernel:
    name: str
    release: str
    image: Path              # booted by QEMU
    build_dir: Path          # modules are built against it (KDIR)
    root: Path | None = None  # where lib/modules/RELEASE is, if it has modules
    debug: bool = False


@dataclass
class Recipe:
    """How a kernel is built: its source and its configuration fragments."""
    source: Source | Series
    fragments: list


BUILT = {
    "6.12-series": Recipe(SERIES_6_12, ["guest.config", "6.12.config"]),
    "6.12-series-debug": Recipe(SERIES_6_12, ["guest.config", "6.12.config", "debug.config"]),
    # With the configuration of 7.3-series: the baseline for measuring the patches
    "7.3-plain": Recipe(LINUX_7_3, ["guest.config", "7.3.config"]),
    "7.3-debug": Recipe(LINUX_7_3, ["guest.config", "7.3.config", "debug.config"]),
    "7.3-series": Recipe(SERIES_7_3, ["guest.config", "7.3.config", "series.config"]),
    "7.3-series-debug": Recipe(SERIES_7_3,
                               ["guest.config", "7.3.config", "series.config", "remote.config",
                                "debug.config"]),
    # And with buffers that stay mapped for DMA
    "7.3-mapped": Recipe(MAPPED_7_3, ["guest.config", "7.3.config", "series.config"]),
    "7.3-mapped-debug": Recipe(MAPPED_7_3, ["guest.config", "7.3.config", "series.config",
                                            "debug.config"]),
}
# The sources of Debian's builds
PREBUILT_OF = {"6.12": LINUX_6_12, "7.3": LINUX_7_3}
NAMES = sorted([*PREBUILT, *BUILT])


def source(name):
    """The source of that kernel; for a prebuilt kernel, the one that Debian built it from."""
    return BUILT[name].source if name in BUILT else PREBUILT_OF[name or "7.3"]


def ensure(name):
    """The kernel of that name, downloaded or built if it is not in the cache."""
    if name in PREBUILT:
        return debian(name)
    if name not in BUILT:
        raise Failure(f"unknown kernel '{name}': choose one of {', '.join(NAMES)}")
    recipe = BUILT[name]
    directory = build.ensure(name, recipe.source.ensure(), recipe.fragments)
    release = (directory / "include/config/kernel.release").read_text().strip()
    return Kernel(name, release, directory / "vmlinux", directory, debug="debug" in name)


def debian(name):
    root = prebuilt.ensure(name)
    (packed,) = (root / "boot").glob("vmlinuz-*")
    release = re.sub(r"^vmlinuz-", "", packed.name)
    return Kernel(name, release, vmlinux.ensure(packed),
                  root / "usr/src" / f"linux-headers-{release}", root)
