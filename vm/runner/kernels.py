# SPDX-License-Identifier: MIT OR Apache-2.0
"""The kernels a guest can run."""

import platform
import re
from dataclasses import dataclass, replace
from pathlib import Path

from . import build, prebuilt, vmlinux
from .arch import ALL, AMD64, Arch
from .messages import Failure
from .series import ALONE_7_3, FIXES_7_3, MAPPED_7_3, PLAIN_7_3, SERIES_6_12, SERIES_7_3, Series
from .source import LINUX_6_1, LINUX_6_12, LINUX_7_2, LINUX_7_3, Source


@dataclass
class Kernel:
    name: str
    release: str
    image: Path              # booted by QEMU
    build_dir: Path          # modules are built against it (KDIR)
    root: Path | None = None  # where lib/modules/RELEASE is, if it has modules
    debug: bool = False
    arch: Arch = AMD64

    @property
    def series(self):
        """Its name without Debian's flavour and the size of a page."""
        return prebuilt.names(self.arch).get(self.name, (re.sub(r"-\d+k\b", "", self.name),))[0]

    @property
    def label(self):
        """Its name, also among those of other architectures."""
        return label(self.name, self.arch)


def label(name, arch):
    """The name of a kernel, also among those of other architectures."""
    return name if arch is AMD64 else f"{name}-{arch.name}"


@dataclass
class Recipe:
    """How a kernel is built: its source and its configuration, the names of files in configs/."""
    source: Source | Series
    fragments: list
    counted: bool = False    # gcov counts the lines of the files that the patches change

    def with_pages(self, size):
        return replace(self, fragments=[*self.fragments, size])

    def variables(self):
        """Of kbuild."""
        return [f"GCOV_PROFILE_{Path(name).stem}.o=y" for name in self.source.sources()] if self.counted else []


CHECKED = ["remote", "debug", "encrypted"]
ALONE = ["guest", "7.3", "series"]
SERIES = Recipe(SERIES_7_3, [*ALONE, "file-io"])
SERIES_DEBUG = Recipe(SERIES_7_3, [*SERIES.fragments, *CHECKED])
BUILT = {
    "amd64": {
        "6.12-series": Recipe(SERIES_6_12, ["guest", "6.12", "encrypted"]),
        "6.12-series-debug": Recipe(SERIES_6_12, ["guest", "6.12", "debug", "encrypted"]),
        # With the configuration of 7.3-series: the baseline for measuring the patches
        "7.3-plain": Recipe(PLAIN_7_3, ["guest", "7.3"]),
        "7.3-debug": Recipe(PLAIN_7_3, ["guest", "7.3", "debug", "encrypted"]),
        "7.3-series": SERIES,
        "7.3-series-debug": SERIES_DEBUG,
        # To measure what indirect calls cost
        "7.3-series-retpoline": Recipe(SERIES_7_3, [*SERIES.fragments, "retpoline"]),
        # For tests/coverage/series
        "7.3-series-coverage": Recipe(SERIES_7_3, [*SERIES.fragments, "remote", "coverage", "encrypted"], counted=True),
        # With all fixes of the series, which are seven patch sets
        "7.3-fixes": Recipe(FIXES_7_3, [*ALONE, "encrypted"]),
        # One piece of the series, with the parts of other pieces that it needs
        "7.3-copy-file-range": Recipe(ALONE_7_3["copy-file-range"], SERIES.fragments),
        "7.3-small-reads": Recipe(ALONE_7_3["small-reads"], ALONE),
        "7.3-heap-flag": Recipe(ALONE_7_3["heap-flag"], SERIES.fragments),
        # With all of it, and with buffers that stay mapped for DMA
        "7.3-mapped": Recipe(MAPPED_7_3, SERIES.fragments),
        "7.3-mapped-debug": Recipe(MAPPED_7_3, SERIES_DEBUG.fragments),
    },
    "arm64": {
        "7.3-series": SERIES,
        "7.3-series-16k": SERIES.with_pages("16k"),
        "7.3-series-64k": SERIES.with_pages("64k"),
        "7.3-series-debug": SERIES_DEBUG,
        "7.3-series-64k-debug": SERIES_DEBUG.with_pages("64k"),
    },
}
# The sources of Debian's builds
PREBUILT_OF = {"6.1": LINUX_6_1, "6.12": LINUX_6_12, "7.2": LINUX_7_2, "7.3": LINUX_7_3}


def names(arch):
    """The kernels of an architecture."""
    return sorted([*prebuilt.names(arch), *BUILT[arch.name]])


NAMES = sorted({name for each in ALL.values() for name in names(each)})


def source(name):
    """The source of that kernel, the same for all architectures; for a prebuilt kernel, the one that
    Debian built it from."""
    for built in BUILT.values():
        if name in built:
            return built[name].source
    return PREBUILT_OF[(name or "7.3").partition("-")[0]]


def ensure(name, arch=AMD64):
    """The kernel of that name, downloaded or built if it is not in the cache."""
    if (host := platform.machine()) != "x86_64":
        raise Failure(f"guests need an amd64 host, and this is {host}: run the tests without a guest (cargo test)")
    if name not in names(arch):
        raise Failure(f"unknown kernel '{name}' for {arch.name}: choose one of {', '.join(names(arch))}")
    if name in prebuilt.names(arch):
        return debian(name, arch)
    recipe = BUILT[arch.name][name]
    directory = build.ensure(label(name, arch), recipe.source.ensure(), recipe.fragments, arch, recipe.variables())
    release = (directory / "include/config/kernel.release").read_text().strip()
    return Kernel(name, release, directory / arch.image, directory, debug="debug" in name, arch=arch)


def debian(name, arch):
    root = prebuilt.ensure(name, arch)
    (packed,) = (root / "boot").glob("vmlinuz-*")
    release = re.sub(r"^vmlinuz-", "", packed.name)
    image = vmlinux.ensure(packed) if arch is AMD64 else packed
    return Kernel(name, release, image, root / "usr/src" / f"linux-headers-{release}", root, arch=arch)
