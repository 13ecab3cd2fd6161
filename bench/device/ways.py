# SPDX-License-Identifier: MIT OR Apache-2.0
"""The ways to bring the tensors of a file to a device, and the floors: the disk alone, the bus alone. As those of
bench/peers/loaders.py, one imports what it needs when it is chosen; memory that is measured again and again is got then, too."""

import concurrent.futures
import mmap
import os
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import loaders
from content import Layout
from loaders import Load

# Of what goes over the bus alone, and is used again.
PIECE = 256 << 20
# Of the reads that measure the disk alone, and how many are in flight.
BLOCK, DEPTH = 4 << 20, 16


def iter_tensors(device: str) -> Load:
    """One tensor after the other, all of which are kept."""
    import torch  # noqa: F401
    import dmabuf_dio

    def load(path: str) -> dict[str, Any]:
        return {name: tensor.torch() for name, tensor in dmabuf_dio.iter_tensors(path, device=device)}
    return load


def safetensors(device: str) -> Load:
    from safetensors.torch import load_file
    return lambda path: load_file(path, device=device)


def safetensors_to(device: str) -> Load:
    """Tensors over a mapping of the file, copied one by one."""
    from safetensors.torch import load_file
    return lambda path: {name: tensor.to(device) for name, tensor in load_file(path).items()}


def read_to(device: str) -> Load:
    """read() of the whole data section, which is copied at once."""
    import numpy as np
    import torch

    def load(path: str) -> dict[str, Any]:
        layout = Layout.of_file(path)
        data = torch.from_numpy(np.fromfile(path, dtype=np.uint8, offset=layout.data_begin))
        return loaders.torch_views(data.to(device), layout)
    return load


def disk_dmabuf_dio(_: str) -> Load:
    """Direct I/O into new memory of the process."""
    import dmabuf_dio

    def load(path: str) -> dict[str, Any]:
        dmabuf_dio.load(path, kind="private").close()
        return {}
    return load


def disk_preadv(_: str) -> Load:
    """Threads that read with O_DIRECT into the same huge pages again and again."""
    memory = mmap.mmap(-1, BLOCK * DEPTH)
    memory.madvise(mmap.MADV_HUGEPAGE)
    memory.write(bytes(len(memory)))
    pool = concurrent.futures.ThreadPoolExecutor(DEPTH)

    def load(path: str) -> dict[str, Any]:
        file = os.open(path, os.O_RDONLY | os.O_DIRECT)
        length = os.fstat(file).st_size

        def read(slot: int) -> int:
            block = memoryview(memory)[slot * BLOCK:(slot + 1) * BLOCK]
            return sum(os.preadv(file, [block], at) for at in range(slot * BLOCK, length, DEPTH * BLOCK))
        done = sum(pool.map(read, range(DEPTH)))
        os.close(file)
        if done != length:
            raise OSError(f"{path}: {done} of {length} bytes were read")
        return {}
    return load


def bus(device: str) -> Load:
    """Copies of the same pinned memory, as many bytes as the file has."""
    import torch
    source = torch.ones(PIECE, dtype=torch.uint8, pin_memory=device != "cpu")
    target = torch.empty(PIECE, dtype=torch.uint8, device=device)

    def load(path: str) -> dict[str, Any]:
        length = os.path.getsize(path)
        for at in range(0, length, PIECE):
            count = min(PIECE, length - at)
            target[:count].copy_(source[:count], non_blocking=True)
        return {}
    return load


class Way(NamedTuple):
    role: Literal["ours", "theirs", "disk", "bus"]
    make: Callable[[str], Load]
    # There is no such way to the CPU.
    needs_device: bool = False


WAYS = {
    "dmabuf-dio": Way("ours", loaders.dmabuf_dio_torch),
    "dmabuf-dio-iter": Way("ours", iter_tensors, needs_device=True),
    "safetensors": Way("theirs", safetensors),
    "safetensors-to": Way("theirs", safetensors_to),
    "read-to": Way("theirs", read_to),
    "fastsafetensors": Way("theirs", loaders.fastsafetensors),
    "fastsafetensors-gds": Way("theirs", lambda device: loaders.fastsafetensors(device, nogds=False), needs_device=True),
    "runai": Way("theirs", loaders.runai),
    "disk-dmabuf-dio": Way("disk", disk_dmabuf_dio),
    "disk-preadv": Way("disk", disk_preadv),
    "bus": Way("bus", bus),
}
