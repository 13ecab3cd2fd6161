# SPDX-License-Identifier: MIT OR Apache-2.0
"""Extract vmlinux from a compressed image.

QEMU can boot it directly, which saves a second of decompression under emulation.
"""

import subprocess

from .commands import need
from .messages import Failure
from .paths import lock

ZSTD = b"\x28\xb5\x2f\xfd"
XZ = b"\xfd7zXZ\x00"


def ensure(packed):
    target = packed.with_name(packed.name.replace("vmlinuz", "vmlinux"))
    with lock(target.name):
        if not target.exists():
            partial = target.with_name(target.name + ".partial")
            partial.write_bytes(unpack(packed.read_bytes()))
            partial.rename(target)
    return target


def unpack(image):
    for magic, program in ((ZSTD, "zstd"), (XZ, "xz")):
        start = image.find(magic)
        while start >= 0:
            # The program reports an error for the data after the compressed kernel.
            kernel = subprocess.run([need(program), "-dcq"], input=image[start:],
                                    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                    check=False).stdout
            if kernel.startswith(b"\x7fELF"):
                return kernel
            start = image.find(magic, start + 1)
    raise Failure("the kernel image has an unknown compression format")
