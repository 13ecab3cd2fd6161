# SPDX-License-Identifier: MIT OR Apache-2.0
"""Take the kernel proper out of a compressed image.

QEMU can start it directly, which saves the guest the unpacking: a second under emulation.
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
            # What follows the compressed kernel makes the program complain at the end.
            kernel = subprocess.run([need(program), "-dcq"], input=image[start:],
                                    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                    check=False).stdout
            if kernel.startswith(b"\x7fELF"):
                return kernel
            start = image.find(magic, start + 1)
    raise Failure("the kernel image is compressed in a way that is not known here")
