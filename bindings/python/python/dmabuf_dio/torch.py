# SPDX-License-Identifier: MIT OR Apache-2.0
# pyright: basic, reportAttributeAccessIssue=false, reportMissingModuleSource=false
"""Tensors as torch tensors, which share the memory that the file was loaded into."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch  # type: ignore[import-not-found, unused-ignore]  # pyright: ignore[reportMissingImports]

from ._safe_open import safe_open

if TYPE_CHECKING:
    from os import PathLike

    from ._native import Tensor, TensorInfo

__all__ = ["as_tensor", "load_file"]

_NAMES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "U16": "uint16",
    "I16": "int16",
    "F16": "float16",
    "BF16": "bfloat16",
    "U32": "uint32",
    "I32": "int32",
    "F32": "float32",
    "U64": "uint64",
    "I64": "int64",
    "F64": "float64",
    "C64": "complex64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    # Two elements in a byte: torch counts bytes.
    "F4": "float4_e2m1fn_x2",
}
# The types that this version of torch has.
_DTYPES = {name: getattr(torch, theirs) for name, theirs in _NAMES.items() if hasattr(torch, theirs)}


def as_tensor(
    tensor: Tensor | TensorInfo, memory: Tensor | bytearray | memoryview | None = None, shape: tuple[int, ...] | None = None
) -> torch.Tensor:
    """A tensor as one of torch that shares its memory, which has to be writable.

    Packed and quantised types that torch lacks are bytes. Where the file has a tensor that is not aligned to its
    type, or is big-endian, the result is a copy. `memory`: where its bytes are, if not in itself; `shape`: that of a part of it.

    Raises ValueError for a packed type whose last dimension is not whole bytes.
    """
    dtype = _DTYPES.get(tensor.dtype)
    shape = tensor.shape if shape is None else shape
    elements, _ = tensor.block
    if dtype is None or elements > 1:
        from .numpy import byte_shape

        dtype, shape = dtype or torch.uint8, byte_shape(tensor)
    if 0 in shape:
        return torch.empty(shape, dtype=dtype)
    source: Any = tensor if memory is None else memory
    if _swaps(tensor):
        from .numpy import swapped

        source = swapped(source, tensor.block[1])
    if not isinstance(source, (bytearray, memoryview)):
        if not source.buffer.writable:
            raise BufferError("torch has no read-only tensors: load with writable=True")
        if copies(source):
            source = bytearray(source)
    return torch.frombuffer(source, dtype=dtype).reshape(shape)


def copies(tensor: Tensor) -> bool:
    """Whether as_tensor() copies the bytes: the file has them where their type is not aligned, or is big-endian."""
    return tensor.offset % tensor.block[1] != 0 or _swaps(tensor)


def _swaps(tensor: Tensor | TensorInfo) -> bool:
    """Whether the bytes of each element are in the other order than torch's. Blocks stay as they are."""
    elements, size = tensor.block
    return tensor.byte_order == "big" and elements == 1 and size > 1


def load_file(
    filename: str | PathLike[str], device: str | int = "cpu", *, backend: str = "mmap"
) -> dict[str, torch.Tensor]:
    """As safetensors.torch.load_file(): all tensors of a file.

    On the CPU, they share the memory that the file was loaded to; it is freed with the last of them.
    """
    with safe_open(filename, framework="pt", device=device, backend=backend) as file:
        return file.get_tensors()


# Maps torch's code for it: otherwise the first load waits for it, behind the reads that it has sent to the disk.
torch.frombuffer(bytearray(4), dtype=torch.float32).reshape(1, 1)
