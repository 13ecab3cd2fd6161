# SPDX-License-Identifier: MIT OR Apache-2.0
"""The kernels a guest can run."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from . import build, prebuilt, vmlinux
from .messages import Failure
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
    boot_modules: list = field(default_factory=list)


@dataclass
class Recipe:
    """How a kernel is built: from which source, with which parts of a configuration."""
    source: Source | Series
    fragments: list


BUILT = {
    "6.12-series": Recipe(SERIES_6_12, ["guest.config", "6.12.config"]),
    "6.12-series-debug": Recipe(SERIES_6_12, ["guest.config", "6.12.config", "debug.config"]),
    "7.3": Recipe(LINUX_7_3, ["guest.config", "7.3.config"]),
    "7.3-debug": Recipe(LINUX_7_3, ["guest.config", "7.3.config", "debug.config"]),
    "7.3-series": Recipe(SERIES_7_3, ["guest.config", "7.3.config", "series.config"]),
    "7.3-series-debug": Recipe(SERIES_7_3,
                               ["guest.config", "7.3.config", "series.config", "debug.config"]),
}
NAMES = ["6.12", *BUILT]


def source(name):
    """Where the source of that kernel comes from: of Debian's prebuilt one, what it was built of."""
    if name == "6.12":
        return LINUX_6_12
    return BUILT[name].source if name else LINUX_7_3


def ensure(name):
    """The kernel of that name, fetched or built if it is not in the cache."""
    if name == "6.12":
        return debian(name)
    if name not in BUILT:
        raise Failure(f"unknown kernel '{name}': choose one of {', '.join(NAMES)}")
    recipe = BUILT[name]
    directory = build.ensure(name, recipe.source.ensure(), recipe.fragments)
    release = (directory / "include/config/kernel.release").read_text().strip()
    return Kernel(name, release, directory / "vmlinux", directory, debug="debug" in name)


def debian(name):
    root = prebuilt.ensure()
    (packed,) = (root / "boot").glob("vmlinuz-*")
    release = re.sub(r"^vmlinuz-", "", packed.name)
    return Kernel(name, release, vmlinux.ensure(packed),
                  root / "usr/src" / f"linux-headers-{release}", root)
