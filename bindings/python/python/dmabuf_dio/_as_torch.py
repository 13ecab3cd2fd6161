# SPDX-License-Identifier: MIT OR Apache-2.0
# pyright: basic, reportAttributeAccessIssue=false, reportMissingModuleSource=false
"""Tensors as torch tensors, which share their memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch  # type: ignore[import-not-found, unused-ignore]  # pyright: ignore[reportMissingImports]

from ._layout import NAMES, byte_shape, swapped, swaps

if TYPE_CHECKING:
    from ._lazy import Memory
    from ._native import _Described

# F4 has two elements in a byte: torch counts bytes.
_NAMES = NAMES | {"F4": "float4_e2m1fn_x2"}
# The types that this version of torch has.
_DTYPES = {name: getattr(torch, theirs) for name, theirs in _NAMES.items() if hasattr(torch, theirs)}


def as_tensor(
    tensor: _Described, memory: Memory | None = None, shape: tuple[int, ...] | None = None
) -> Any:
    """A tensor as one of torch that shares its memory, which has to be writable.

    Packed and quantised types that torch lacks are bytes. Where the file has a tensor that is not aligned to its
    type, or is big-endian, the result is a copy. `memory`: where its bytes are, if not in itself; `shape`: that of a part of it.

    Raises ValueError for a packed type whose last dimension is not whole bytes.
    """
    dtype, shape = layout(tensor, shape)
    if 0 in shape:
        return torch.empty(shape, dtype=dtype)
    source: Any = tensor if memory is None else memory
    if swaps(tensor):
        source = swapped(source, tensor.block[1])
    elif type(source) is not bytearray:
        view = memoryview(source)
        if view.readonly:
            raise BufferError("torch has no read-only tensors: load with writable=True")
        # torch wants elements that are aligned.
        source = bytearray(view) if tensor.offset % tensor.block[1] else view
    return torch.frombuffer(source, dtype=dtype).reshape(shape)


def layout(tensor: _Described, shape: tuple[int, ...] | None = None) -> tuple[Any, tuple[int, ...]]:
    """torch's type and shape of a tensor. Raises ValueError as as_tensor() does."""
    dtype = _DTYPES.get(tensor.dtype)
    if dtype is None or tensor.block[0] > 1:
        return dtype or torch.uint8, byte_shape(tensor)
    return dtype, tensor.shape if shape is None else shape


# Maps torch's code for it: otherwise the first load waits for it, behind the reads that it has sent to the disk.
torch.frombuffer(bytearray(4), dtype=torch.float32).reshape(1, 1)
