# SPDX-License-Identifier: MIT OR Apache-2.0
"""Kernel sources: the user's tree if the environment names one, else Debian's package."""

import hashlib
import os
import re
import shutil
from pathlib import Path

from . import archive
from .commands import run
from .messages import Failure, say
from .paths import cache, lock


class Tree:
    """A kernel source tree; `label` is part of the names of trees that are made from it by patches, `identity`
    changes when the tree has to be built again."""

    def __init__(self, path, label, identity):
        self.path = path
        self.label = label
        self.identity = identity


class Source:
    """A Debian package with a kernel source, and the environment variable that overrides it."""

    def __init__(self, package, packages, override):
        self.package = package
        self.packages = packages
        self.override = override

    def ensure(self):
        override = os.environ.get(self.override)
        if override:
            return own_tree(Path(override).resolve())
        path = cache("src", self.package)
        with lock(self.package):
            if not path.exists():
                self.fetch(path)
        return Tree(path, "", version(path))

    def fetch(self, path):
        downloads = cache("deb", self.package)
        (package,) = self.packages().download([self.package], downloads)
        say("unpacking the kernel source")
        partial = path.with_name(path.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        run(["dpkg-deb", "-x", package, partial / "package"])
        tarball = next((partial / "package/usr/src").glob(f"{self.package}.tar.*"))
        run(["tar", "-C", partial, "-xf", tarball])
        (partial / self.package).rename(path)
        shutil.rmtree(partial)
        shutil.rmtree(downloads)


LINUX_7_3 = Source("linux-source-7.3", archive.backports, "KERNEL_SRC")
LINUX_7_2 = Source("linux-source-7.2", archive.backports, "KERNEL_SRC_7_2")
LINUX_6_1 = Source("linux-source-6.1", archive.debian, "KERNEL_SRC_6_1")
LINUX_6_12 = Source("linux-source-6.12", archive.debian, "KERNEL_SRC_6_12")


def version(path):
    try:
        text = (path / "Makefile").read_text()
        parts = [re.search(rf"^{name} = (.*)$", text, re.M).group(1)
                 for name in ("VERSION", "PATCHLEVEL", "SUBLEVEL")]
        return ".".join(parts)
    except (OSError, AttributeError):
        raise Failure(f"{path} is not a kernel source: its Makefile has no version") from None


def own_tree(path):
    """The user's tree: built separately, and rebuilt whenever a source file changes."""
    number = version(path)
    newest, count = 0, 0
    for directory, _, names in os.walk(path):
        for name in names:
            if name.endswith((".c", ".h", ".S")) or name.startswith(("Kconfig", "Makefile", "Kbuild")):
                try:
                    newest = max(newest, os.lstat(os.path.join(directory, name)).st_mtime_ns)
                except OSError:
                    continue
                count += 1
    label = "-" + hashlib.sha256(str(path).encode()).hexdigest()[:8]
    return Tree(path, label, f"{number} {path} {count} {newest}")
