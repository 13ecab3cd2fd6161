# SPDX-License-Identifier: MIT OR Apache-2.0
"""The root of a guest whose programs this machine cannot run: unpacked packages, none configured."""

import os
import shutil
from pathlib import Path

from . import archive
from .commands import run
from .messages import say
from .paths import cache, lock


def ensure(arch):
    """The directory, or None where the guest uses the host's root."""
    if arch.native:
        return None
    target = cache(f"root-{arch.name}")
    wanted = " ".join(arch.packages)
    stamp = target / "packages"
    with lock(target.name):
        if not stamp.exists() or stamp.read_text() != wanted:
            create(arch, target)
            stamp.write_text(wanted)
    return target


def create(arch, target):
    partial = target.with_name(target.name + ".partial")
    for old in (target, partial):
        shutil.rmtree(old, ignore_errors=True)
    source = archive.release()
    say(f"unpacking {source.suite} for {arch.name} into {target}")
    # Programs of the packages are not run, so nothing has to emulate them.
    run(["mmdebstrap", "--variant=extract", "--mode=root" if os.geteuid() == 0 else "--mode=unshare",
         "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr", '--aptopt=APT::Sandbox::User "root"',
         f"--architectures={arch.name}", f"--include={','.join(arch.packages)}",
         source.suite, partial, source.line()])
    configure(partial)
    partial.rename(target)


def configure(root):
    """The little of what the packages' scripts would do that the tests need."""
    for name in ("passwd", "group"):
        shutil.copyfile(root / f"usr/share/base-passwd/{name}.master", root / "etc" / name)
    for name in ("mnt", "root", "run", "tmp", "var/tmp"):
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "usr/bin/awk").symlink_to("mawk")
    (root / "etc/mtab").symlink_to("/proc/self/mounts")


def show(root, paths):
    """Create the mount points for the directories of the host."""
    for path in paths:
        (root / Path(path).relative_to("/")).mkdir(parents=True, exist_ok=True)
