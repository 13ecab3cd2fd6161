# SPDX-License-Identifier: MIT OR Apache-2.0
"""The loaders. What one needs is imported when it is chosen, and before its time begins."""

import ctypes
import functools
import os
from collections.abc import Callable, Mapping
from typing import Any

from content import Layout

PAGE = 4096

Load = Callable[[str], Mapping[str, Any]]


def dmabuf_dio_numpy() -> Load:
    """Direct I/O into memory of the process, of which each array is a view."""
    import ml_dtypes  # noqa: F401  the type bfloat16
    from dmabuf_dio.numpy import load_file
    return load_file


def dmabuf_dio_torch(device: str = "cpu") -> Load:
    """Direct I/O into memory of the process, of which each tensor is a view."""
    import torch  # noqa: F401
    from dmabuf_dio.torch import load_file
    return functools.partial(load_file, device=device)


def fastsafetensors(device: str = "cpu", nogds: bool = True) -> Load:
    """Reader threads, O_DIRECT into bounce buffers, copied to one allocation."""
    import torch  # noqa: F401
    from fastsafetensors import fastsafe_open

    def load(path: str) -> dict[str, Any]:
        # The tensors share the ownership of their memory and outlive the file object.
        with fastsafe_open(path, device=device, nogds=nogds) as file:
            return {name: file.get_tensor(name) for name in file.keys()}
    return load


def numpy_fromfile() -> Load:
    """read() of the whole data section into one array, of which each tensor is a view."""
    import ml_dtypes
    import numpy as np
    types = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16, "I8": np.int8, "U8": np.uint8}

    def load(path: str) -> dict[str, Any]:
        layout = Layout.of_file(path)
        data = np.fromfile(path, dtype=np.uint8, offset=layout.data_begin)
        return {name: data[begin:end].view(types[dtype]).reshape(shape)
                for name, (dtype, shape, begin, end) in layout.tensors.items()}
    return load


def runai(device: str = "cpu") -> Load:
    """io_uring with O_DIRECT into registered buffers, if the kernel supports it."""
    import torch  # noqa: F401
    from runai_model_streamer import SafetensorsStreamer

    def load(path: str) -> dict[str, Any]:
        with SafetensorsStreamer() as streamer:
            streamer.stream_file(path, device=device)
            # The caller owns the tensors (owned=True, the default), so no copy is needed.
            return dict(streamer.get_tensors())
    return load


def safetensors_numpy() -> Load:
    import ml_dtypes  # noqa: F401  gives numpy the name bfloat16
    from safetensors.numpy import load_file
    return load_file


def safetensors_torch() -> Load:
    """Tensors over a mapping of the file."""
    from safetensors.torch import load_file
    return _touched(load_file)


def torch_mmap() -> Load:
    """One mapping of the file, of which each tensor is a view."""
    import torch

    def load(path: str) -> dict[str, Any]:
        layout = Layout.of_file(path)
        return torch_views(torch.from_file(path, size=os.path.getsize(path), dtype=torch.uint8)[layout.data_begin:], layout)
    return _touched(load)


def torch_views(data: Any, layout: Layout) -> dict[str, Any]:
    """The tensors of a data section."""
    import torch
    types = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I8": torch.int8, "U8": torch.uint8}
    return {name: data[begin:end].view(types[dtype]).reshape(shape)
            for name, (dtype, shape, begin, end) in layout.tensors.items()}


def _touched(load: Load) -> Load:
    """Then reads one byte of every page from the first tensor to the last, which are in one mapping."""
    import numpy as np

    def both(path: str) -> Mapping[str, Any]:
        tensors = load(path)
        begin = min(tensor.data_ptr() for tensor in tensors.values())
        end = max(tensor.data_ptr() + tensor.nbytes for tensor in tensors.values())
        memory = np.frombuffer((ctypes.c_uint8 * (end - begin)).from_address(begin), dtype=np.uint8)
        # Aligned to pages, so that the first and the last page are included.
        memory[:1].max()
        memory[-begin % PAGE::PAGE].max(initial=0)
        return tensors
    return both


# A loader imports what it needs. The result loads a file: its tensors are in memory, owned by the caller; dropping them
# frees the memory.
LOADERS: dict[str, Callable[[], Load]] = {
    "dmabuf-dio-torch": dmabuf_dio_torch,
    "dmabuf-dio-numpy": dmabuf_dio_numpy,
    "safetensors-numpy": safetensors_numpy,
    "safetensors-torch": safetensors_torch,
    "fastsafetensors": fastsafetensors,
    "runai": runai,
    "torch-mmap": torch_mmap,
    "numpy-fromfile": numpy_fromfile,
}
