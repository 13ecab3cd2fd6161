# SPDX-License-Identifier: MIT OR Apache-2.0
"""A kernel source with one of our patch series applied."""

import hashlib
import os
import re
import shutil
import subprocess

from . import source
from .messages import Failure, say
from .paths import REPO, cache, lock

STAMP = ".dmabuf-dio-series"


class Series:
    """Patches in folders of kernel/, by pattern, for one source; `name` is the name of the patched tree."""

    def __init__(self, patterns, base, name):
        self.patterns = patterns
        self.base = base
        self.name = name

    def patches(self):
        """The patches in order, without the cover letters (number 0)."""
        return [path for pattern in self.patterns for path in sorted((REPO / "kernel").glob(pattern))
                if path.suffix == ".patch" and not path.name.startswith("0000")]

    def sources(self):
        """The C files of the kernel that the patches change, without its tests."""
        changed = {name for path in self.patches() for name in re.findall(r"^\+\+\+ b/(.*\.c)$", path.read_text(), re.M)}
        return sorted(name for name in changed if not name.startswith("tools/"))

    def ensure(self):
        tree = self.base.ensure()
        patches = self.patches()
        digest = hashlib.sha256(tree.identity.encode())
        for path in patches:
            # Without the description, which changes nothing in the tree
            digest.update(path.read_bytes().partition(b"\ndiff --git ")[2])
        wanted = digest.hexdigest()
        target = cache("src", f"{self.name}{tree.label}")
        stamp = target / STAMP
        with lock(target.name):
            if not stamp.exists() or stamp.read_text() != wanted:
                partial = target.with_name(target.name + ".partial")
                shutil.rmtree(partial, ignore_errors=True)
                copy(tree.path, partial)
                apply(patches, partial)
                keep_times(patches, target, partial)
                for build in target.glob("build-*"):
                    build.rename(partial / build.name)
                shutil.rmtree(target, ignore_errors=True)
                partial.rename(target)
                stamp.write_text(wanted)
        return source.Tree(target, tree.label, wanted)


def pieces():
    """The folders of kernel/series, in the order in which their patches apply. Each has the patterns of the
    patches that it needs from other folders, then of its own."""
    lines = (REPO / "kernel/series/order").read_text().splitlines()
    words = [line.split() for line in lines if line and not line.startswith("#")]
    return {name: [f"series/{pattern}" for pattern in (*needs, f"{name}/*")] for name, *needs in words}


# Fixes of the series, a folder for each mail
FIXES = ("usb", "iio", "udmabuf", "xfs-iomap", "block", "ext4", "f2fs")
PLAIN_7_3 = Series([], source.LINUX_7_3, "linux-plain")
FIXES_7_3 = Series([f"series/{name}/*" for name in FIXES], source.LINUX_7_3, "linux-fixes")
ALL = [f"series/{name}/*" for name in pieces()]
SERIES_7_3 = Series(ALL, source.LINUX_7_3, "linux-series")
MAPPED_7_3 = Series([*ALL, "series-mapped/*"], source.LINUX_7_3, "linux-mapped")
SERIES_6_12 = Series(["series-6.12/*"], source.LINUX_6_12, "linux-series-6.12")
# Each piece alone, as its maintainers would take it
ALONE_7_3 = {name: Series(patterns, source.LINUX_7_3, f"linux-{name}") for name, patterns in pieces().items()}


def copy(path, target):
    """Copy by hard links if possible; patch(1) replaces files instead of modifying them."""
    for options in ("-al", "-a"):
        if subprocess.run(["cp", options, path, target], stderr=subprocess.PIPE).returncode == 0:
            return
        shutil.rmtree(target, ignore_errors=True)
    raise Failure(f"{path} cannot be copied to {target}: is the disk full?")


def apply(patches, target):
    say(f"applying {len(patches)} patches to {target}")
    for path in patches:
        done = subprocess.run(
            ["patch", "--directory", target, "--strip=1", "--fuzz=0", "--batch", "--quiet",
             "--no-backup-if-mismatch", "--input", path],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            raise Failure(f"{path.name} does not apply to this source:\n{done.stdout}")


def keep_times(patches, old, new):
    """Keep the timestamps of patched files whose content has not changed, to avoid rebuilding them."""
    for path in patches:
        for name in re.findall(r"^\+\+\+ b/(.*)$", path.read_text(), re.M):
            before, after = old / name, new / name
            if before.exists() and before.read_bytes() == after.read_bytes():
                os.utime(after, ns=(before.stat().st_atime_ns, before.stat().st_mtime_ns))
