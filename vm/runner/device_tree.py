# SPDX-License-Identifier: MIT OR Apache-2.0
"""The device tree of a guest: QEMU's device tree, with devices that boards have."""

import subprocess

from .commands import run

# The memory of the emulated machine starts at 1 GiB.
RESERVED = {
    # For firmware or secure memory: no linear mapping
    "unmapped@60000000": (0x6000_0000, 4 << 20, {"no-map": None}),
    # For devices without an IOMMU
    "contiguous@64000000": (0x6400_0000, 64 << 20, {
        "compatible": "shared-dma-pool", "reusable": None, "linux,cma-default": None,
    }),
}


def write(path, emulator, machine, arguments):
    """Write QEMU's device tree of `machine` to `path`. `arguments`: of the emulator, for processors and memory."""
    run([emulator, "-nodefaults", "-no-user-config", "-display", "none",
         "-machine", f"{machine},dumpdtb={path}", *arguments])


def forget_coherence(path):
    """DMA is no longer said to be coherent with the processor's caches. Linux then maintains them."""
    for node in nodes(path, "/"):
        if "dma-coherent" in names("-p", path, node):
            run(["fdtput", "-d", path, node, "dma-coherent"])


def names(kind, path, node):
    """Of the properties ("-p") or the nodes ("-l") of a node."""
    done = subprocess.run(["fdtget", kind, path, node], stdout=subprocess.PIPE, check=True, text=True)
    return done.stdout.split()


def nodes(path, folder):
    """The paths of all nodes below `folder`."""
    for name in names("-l", path, folder):
        node = f"{folder.rstrip('/')}/{name}"
        yield node
        yield from nodes(path, node)


def reserve_memory(path):
    """RESERVED is reserved."""
    folder = "/reserved-memory"
    run(["fdtput", "-c", path, folder])
    for name in "#address-cells", "#size-cells":
        run(["fdtput", "-t", "u", path, folder, name, "2"])
    run(["fdtput", path, folder, "ranges"])
    for name, (start, size, properties) in RESERVED.items():
        node = f"{folder}/{name}"
        run(["fdtput", "-c", path, node])
        cells = [f"{number:#x}" for value in (start, size) for number in (value >> 32, value & 0xffff_ffff)]
        run(["fdtput", "-t", "x", path, node, "reg", *cells])
        for key, value in properties.items():
            run(["fdtput", *(["-t", "s", path, node, key, value] if value else [path, node, key])])
