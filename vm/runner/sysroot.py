# SPDX-License-Identifier: MIT OR Apache-2.0
"""Packages to build 32-bit programs for the guests of 64-bit kernels, unpacked. The programs are
linked statically, so the guests need none of the packages."""

import shutil

from . import archive
from .commands import run
from .messages import say
from .paths import cache, lock

NAMES = ("i386", "armhf")  # as Debian calls them
PACKAGES = ("libc6-dev", "libdrm-dev", "liburing-dev", "linux-libc-dev")


def ensure(name):
    """The directory to pass to the compiler as --sysroot."""
    target = cache(f"sysroot-{name}")
    with lock(target.name):
        if not target.exists():
            create(name, target)
    return target


def create(name, target):
    partial = target.with_name(target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    downloads = cache("deb", target.name)
    packages = archive.backports(name, archive.release().suite)
    for package in packages.download([f"{package}:{name}" for package in PACKAGES], downloads):
        run(["dpkg-deb", "-x", package, partial])
    shutil.rmtree(downloads)
    partial.rename(target)
    say(f"headers and libraries for {name} are ready in {target}")
