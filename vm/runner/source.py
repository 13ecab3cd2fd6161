# SPDX-License-Identifier: MIT OR Apache-2.0
"""The Linux 7.3 source: KERNEL_SRC if given, else Debian's package out of backports."""

import hashlib
import os
import re
import shutil
from pathlib import Path

from . import archive
from .commands import run
from .messages import Failure, say
from .paths import cache, lock

PACKAGE = "linux-source-7.3"


class Tree:
    """A kernel source tree; `label` is part of the build directory's name, `identity`
    changes when the tree has to be built again."""

    def __init__(self, path, label, identity):
        self.path = path
        self.label = label
        self.identity = identity


def ensure():
    override = os.environ.get("KERNEL_SRC")
    if override:
        return own_tree(Path(override).resolve())
    path = cache("src", PACKAGE)
    with lock(PACKAGE):
        if not path.exists():
            fetch(path)
    return Tree(path, "", version(path))


def version(path):
    try:
        text = (path / "Makefile").read_text()
        parts = [re.search(rf"^{name} = (.*)$", text, re.M).group(1)
                 for name in ("VERSION", "PATCHLEVEL", "SUBLEVEL")]
        return ".".join(parts)
    except (OSError, AttributeError):
        raise Failure(f"{path} is no kernel source: its Makefile names no version") from None


def own_tree(path):
    """A tree that someone works on: built apart, and again whenever a source file changes."""
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


def fetch(path):
    packages = archive.backports()
    downloads = cache("deb", PACKAGE)
    (package,) = packages.download([PACKAGE], downloads)
    say("unpacking the kernel source")
    partial = path.with_name(path.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    run(["dpkg-deb", "-x", package, partial / "package"])
    tarball = next((partial / "package/usr/src").glob(f"{PACKAGE}.tar.*"))
    run(["tar", "-C", partial, "-xf", tarball])
    (partial / PACKAGE).rename(path)
    shutil.rmtree(partial)
    shutil.rmtree(downloads)
