# SPDX-License-Identifier: MIT OR Apache-2.0
# pyright: basic, reportAttributeAccessIssue=false, reportMissingModuleSource=false
"""Tensors as torch tensors, which use the memory that the file was loaded into; and torch tensors saved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._as_torch import as_tensor
from ._safe_open import safe_open
from ._save_torch import save

if TYPE_CHECKING:
    from os import PathLike

    from ._native import CancelToken, Report
    from .types import Progress

    import torch  # type: ignore[import-not-found, unused-ignore]  # pyright: ignore[reportMissingImports]

__all__ = ["as_tensor", "load_file", "save_file"]


def load_file(
    filename: str | PathLike[str], device: str | int = "cpu", *, backend: str = "mmap"
) -> dict[str, torch.Tensor]:
    """As safetensors.torch.load_file(): all tensors of a file.

    Each has memory of its own, which is freed with it. For a CUDA or ROCm device the disk fills registered memory while
    the device empties it; where the device's memory is the host's, the tensors stay where the disk has put them, in one
    allocation. For other devices they are copied one by one.
    """
    with safe_open(filename, framework="pt", device=device, backend=backend) as file:
        return file.get_tensors()


def save_file(
    tensors: dict[str, torch.Tensor],
    filename: str | PathLike[str],
    metadata: dict[str, str] | None = None,
    *,
    progress: Progress | None = None,
    cancel: CancelToken | None = None,
) -> Report:
    """As safetensors.torch.save_file(): saves tensors, which have to be contiguous and dense, and share no memory.

    The file is durable when this returns, and replaces an old one as a whole or not at all. The bytes are written by
    direct I/O; those on other devices are copied one tensor at a time. Do not change the tensors meanwhile.
    """
    return save(tensors, filename, metadata, progress, cancel)
