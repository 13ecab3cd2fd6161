# SPDX-License-Identifier: MIT OR Apache-2.0
"""Loads files into dma-bufs, memfds and huge pages, and saves them, with no copy by the CPU.

>>> import dmabuf_dio
>>> with dmabuf_dio.load("model.safetensors", kind="memfd") as buffer:  # doctest: +SKIP
...     print(buffer.report, buffer.path)

All offsets and lengths are in bytes. Errors are Python's: OSError with errno and filename, ValueError for
arguments, BufferError for memory that is in use; a note says what to do.
"""

from __future__ import annotations

from ._native import (
    BlockReader,
    BlockWriter,
    Buffer,
    CancelToken,
    DeviceTensor,
    Gathered,
    Gathering,
    Model,
    Refusal,
    Report,
    Tensor,
    TensorInfo,
    Tensors,
    capture,
    doctor,
    gather,
    load,
    load_into,
    read_blocks,
    replay,
    save,
    write_blocks,
)

__all__ = [
    "BlockReader",
    "BlockWriter",
    "Buffer",
    "CancelToken",
    "DeviceTensor",
    "Gathered",
    "Gathering",
    "Model",
    "Refusal",
    "Report",
    "Tensor",
    "TensorInfo",
    "Tensors",
    "aload",
    "capture",
    "doctor",
    "gather",
    "install",
    "iter_tensors",
    "load",
    "load_into",
    "load_tensors",
    "open",
    "read_blocks",
    "replay",
    "safe_open",
    "save",
    "uninstall",
    "write_blocks",
]

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from os import PathLike
    from typing import Any, Unpack

    from ._aio import aload
    from ._install import install, uninstall
    from ._iter import iter_tensors
    from ._safe_open import safe_open
    from .types import TensorOptions

# Imported only when they are used.
_LAZY = {
    "aload": "_aio",
    "install": "_install",
    "iter_tensors": "_iter",
    "safe_open": "_safe_open",
    "uninstall": "_install",
}


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(f".{_LAZY[name]}", __name__), name)
    globals()[name] = value
    return value


def open(path: str | bytes | PathLike[str] | PathLike[bytes]) -> Model:
    """Opens a model: a safetensors or GGUF file, an index, or a folder with one, also by URL. Only headers are read and
    checked."""
    return Model(path)


def load_tensors(path: str | bytes | PathLike[str] | PathLike[bytes], **options: Unpack[TensorOptions]) -> Tensors:
    """Loads the tensors of a model, or those named by `only`. They are views of the memory that was read into."""
    return Model(path).load(**options)


def _numpy(tensor: Tensor) -> Any:
    """The tensor as a NumPy array. Types that NumPy lacks need the package `ml_dtypes`; quantised ones are bytes."""
    from ._as_numpy import as_array

    return as_array(tensor)


def _torch(tensor: Tensor) -> Any:
    """The tensor as a torch tensor. Types that torch lacks are bytes."""
    from ._as_torch import as_tensor

    return as_tensor(tensor)


def _adopted(tensor: DeviceTensor) -> Any:
    """The tensor as a torch tensor, in the same memory, which has to be writable. Types that torch lacks are bytes."""
    from ._torch_device import adopted

    return adopted(tensor)


def _to_device(buffer: Buffer, device: Any) -> DeviceTensor:
    """The content on a CUDA or HIP device ("cuda:0"), as bytes: copied, or where it is if the device has the host's memory.

    The buffer is then in use as long as the result. Raises ValueError for a device that is none, MemoryError if it
    has too little memory, RuntimeError for what its driver refuses.
    """
    from ._device import opened, with_room

    return with_room(lambda: opened(device).copy(buffer))


# Methods in Python: what they call is Python, too.
setattr(Tensor, "numpy", _numpy)
setattr(Tensor, "torch", _torch)
setattr(DeviceTensor, "torch", _adopted)
setattr(Buffer, "to_device", _to_device)
