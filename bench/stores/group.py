# SPDX-License-Identifier: MIT OR Apache-2.0
"""A control group that counts the memory of one process from a moment on. As root."""

import os
import pathlib
from typing import Self

UNIFIED, SPLIT = pathlib.Path("/sys/fs/cgroup"), pathlib.Path("/sys/fs/cgroup/memory")


class Group:
    """What the process gets while it is in here is counted here, also memory of memfds, and pages of files that it reads."""

    def __init__(self) -> None:
        self.is_unified = (UNIFIED / "cgroup.controllers").exists()
        if self.is_unified:
            (UNIFIED / "cgroup.subtree_control").write_text("+memory")
        self.path = (UNIFIED if self.is_unified else SPLIT) / f"bench-{os.getpid()}"

    def __enter__(self) -> Self:
        self.path.mkdir()
        return self

    def __exit__(self, *_: object) -> None:
        self.path.rmdir()

    def take(self, process: int) -> None:
        (self.path / "cgroup.procs").write_text(str(process))

    def peak(self) -> int:
        """The most bytes that were counted."""
        return int((self.path / ("memory.peak" if self.is_unified else "memory.max_usage_in_bytes")).read_text())

    def cached(self) -> int:
        """Bytes of files in the page cache, without those that are files of memory."""
        lines = (self.path / "memory.stat").read_text().splitlines()
        fields = {name: int(value) for name, value in map(str.split, lines)}
        return fields["file" if self.is_unified else "cache"] - fields["shmem"]
