# SPDX-License-Identifier: MIT OR Apache-2.0
"""A directory for the disk images of one run: sparse, freshly formatted, deleted afterwards."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from .commands import run
from .paths import cache, lock

FORMAT = {
    # The image reads as zeros, so mkfs need not discard or zero anything.
    "ext4": ["mkfs.ext4", "-q", "-F", "-E", "nodiscard,assume_storage_prezeroed=1"],
    "xfs": ["mkfs.xfs", "-q", "-f", "-K"],
    "f2fs": ["mkfs.f2fs", "-q", "-f", "-t", "0"],
}
GIB = 1 << 30


@contextlib.contextmanager
def run_directory():
    """A directory on the cache's file system, which unlike /tmp has space and supports O_DIRECT."""
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
    """Delete directories of killed runners: these are not locked any more."""
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
    """Names of the disks without a file system, also their serial numbers in the guest."""
    return ["raw", *(f"raw{number}" for number in range(2, count + 1))]


def create(path, gib, file_system=None):
    with open(path, "wb") as file:
        file.truncate(gib * GIB)
    if file_system:
        run([*FORMAT[file_system], path])


def direct(path):
    """Whether an image can be used without the host's page cache."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_DIRECT))
        return True
    except OSError:
        return False
