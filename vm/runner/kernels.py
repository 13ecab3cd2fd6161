# SPDX-License-Identifier: MIT OR Apache-2.0
"""The kernels a guest can run."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from . import build, prebuilt, series, source, vmlinux
from .messages import Failure


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
    tree: Callable
    fragments: list


BUILT = {
    "7.3": Recipe(source.ensure, ["guest.config"]),
    "7.3-debug": Recipe(source.ensure, ["guest.config", "debug.config"]),
    "7.3-series": Recipe(series.ensure, ["guest.config", "series.config"]),
    "7.3-series-debug": Recipe(series.ensure, ["guest.config", "series.config", "debug.config"]),
}
NAMES = ["6.12", *BUILT]


def ensure(name):
    """The kernel of that name, fetched or built if it is not in the cache."""
    if name == "6.12":
        return debian(name)
    if name not in BUILT:
        raise Failure(f"unknown kernel '{name}': choose one of {', '.join(NAMES)}")
    recipe = BUILT[name]
    directory = build.ensure(name, recipe.tree(), recipe.fragments)
    release = (directory / "include/config/kernel.release").read_text().strip()
    return Kernel(name, release, directory / "vmlinux", directory, debug="debug" in name)


def debian(name):
    root = prebuilt.ensure()
    (packed,) = (root / "boot").glob("vmlinuz-*")
    release = re.sub(r"^vmlinuz-", "", packed.name)
    return Kernel(name, release, vmlinux.ensure(packed),
                  root / "usr/src" / f"linux-headers-{release}", root)
