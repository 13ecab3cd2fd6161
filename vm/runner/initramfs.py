# SPDX-License-Identifier: MIT OR Apache-2.0
"""The initramfs of a guest: busybox, our scripts, and the modules needed to access a disk."""

from pathlib import Path

from .commands import need
from .paths import VM


class Cpio:
    """A cpio archive in the "newc" format, which the kernel unpacks."""

    def __init__(self):
        self.parts = []
        self.inode = 0

    def entry(self, name, mode, data=b""):
        self.inode += 1
        encoded = name.encode() + b"\0"
        fields = (self.inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(encoded), 0)
        header = b"070701" + b"".join(b"%08x" % field for field in fields)
        for part in (header + encoded, data):
            self.parts.append(part + b"\0" * (-len(part) % 4))

    def directory(self, name):
        self.entry(name, 0o040755)

    def file(self, name, data, executable=False):
        self.entry(name, 0o100755 if executable else 0o100644, data)

    def link(self, name, to):
        self.entry(name, 0o120777, to.encode())

    def write(self, path):
        self.entry("TRAILER!!!", 0)
        path.write_bytes(b"".join(self.parts))


def write(path, root, boot_modules, job):
    """`root`: the guest's own, or None. `boot_modules` are pairs of a module file and whether it may fail to load. `job` maps file names to
    contents; the guest finds the files in /job."""
    archive = Cpio()
    for name in ("bin", "dev", "proc", "sys", "job", "modules"):
        archive.directory(name)
    archive.file("bin/busybox", (root / "usr/bin/busybox" if root else Path(need("busybox"))).read_bytes(), executable=True)
    archive.link("bin/sh", "busybox")
    for name in ("init", "session"):
        archive.file(name, (VM / "guest" / name).read_bytes(), executable=True)
    for module, _ in boot_modules:
        archive.file(f"modules/{module.name}", module.read_bytes())
    for name, text in job.items():
        archive.file(f"job/{name}", text.encode("utf-8", "surrogateescape"))
    archive.write(path)
