# SPDX-License-Identifier: MIT OR Apache-2.0
"""A directory for one run with its disk images: sparse, freshly formatted, gone afterwards."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from .commands import run
from .paths import cache, lock

FORMAT = {
    # The image reads as zeros: nothing to write or discard for an empty file system.
    "ext4": ["mkfs.ext4", "-q", "-F", "-E", "nodiscard,assume_storage_prezeroed=1"],
    "xfs": ["mkfs.xfs", "-q", "-f", "-K"],
    "f2fs": ["mkfs.f2fs", "-q", "-f", "-t", "0"],
}
GIB = 1 << 30


@contextlib.contextmanager
def run_directory():
    """A directory on the cache's file system, which unlike /tmp has room and O_DIRECT."""
    parent = cache("run", "x").parent
    with lock("run-directories"):
        remove_stale(parent)
        directory = Path(tempfile.mkdtemp(dir=parent))
        descriptor = os.open(directory, os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        os.close(descriptor)


def remove_stale(parent):
    """Runners that were killed leave their directory behind, but not the lock on it."""
    for path in parent.iterdir():
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        except BlockingIOError:
            pass
        finally:
            os.close(descriptor)


def raw_names(count):
    """Of the disks without a file system: what the guest knows them by, too."""
    return ["raw", *(f"raw{number}" for number in range(2, count + 1))]


def create(path, gib, file_system=None):
    with open(path, "wb") as file:
        file.truncate(gib * GIB)
    if file_system:
        run([*FORMAT[file_system], path])


def direct(path):
    """Whether the host's file system lets an image be used without the host's page cache."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_DIRECT))
        return True
    except OSError:
        return False
