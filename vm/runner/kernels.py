# SPDX-License-Identifier: MIT OR Apache-2.0
"""The kernels a guest can run."""

import re
from dataclasses import dataclass
from pathlib import Path

from . import build, prebuilt, vmlinux
from .messages import Failure
from .prebuilt import PREBUILT
from .series import SERIES_6_12, SERIES_7_3, Series
from .source import LINUX_6_12, LINUX_7_3, Source


@dataclass
class Kernel:
    name: str
    release: str
    image: Path              # what QEMU boots
    build_dir: Path          # what modules are built against (KDIR)
    root: Path | None = None  # where lib/modules/RELEASE is, if it has modules
    debug: bool = False


@dataclass
class Recipe:
    """How a kernel is built: from which source, with which parts of a configuration."""
    source: Source | Series
    fragments: list


BUILT = {
    "6.12-series": Recipe(SERIES_6_12, ["guest.config", "6.12.config"]),
    "6.12-series-debug": Recipe(SERIES_6_12, ["guest.config", "6.12.config", "debug.config"]),
    # In the configuration of 7.3-series: what the patches are measured against.
    "7.3-plain": Recipe(LINUX_7_3, ["guest.config", "7.3.config"]),
    "7.3-debug": Recipe(LINUX_7_3, ["guest.config", "7.3.config", "debug.config"]),
    "7.3-series": Recipe(SERIES_7_3, ["guest.config", "7.3.config", "series.config"]),
    "7.3-series-debug": Recipe(SERIES_7_3,
                               ["guest.config", "7.3.config", "series.config", "remote.config",
                                "debug.config"]),
}
# What Debian built them of
PREBUILT_OF = {"6.12": LINUX_6_12, "7.3": LINUX_7_3}
NAMES = sorted([*PREBUILT, *BUILT])


def source(name):
    """Where the source of that kernel comes from: of Debian's prebuilt one, what it was built of."""
    return BUILT[name].source if name in BUILT else PREBUILT_OF[name or "7.3"]


def ensure(name):
    """The kernel of that name, fetched or built if it is not in the cache."""
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
