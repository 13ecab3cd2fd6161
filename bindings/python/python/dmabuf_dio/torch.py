# SPDX-License-Identifier: MIT OR Apache-2.0
# pyright: basic, reportAttributeAccessIssue=false, reportMissingModuleSource=false
"""Tensors as torch tensors, which use the memory that the file was loaded into."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._as_torch import as_tensor
from ._safe_open import safe_open

if TYPE_CHECKING:
    from os import PathLike

    import torch  # type: ignore[import-not-found, unused-ignore]  # pyright: ignore[reportMissingImports]

__all__ = ["as_tensor", "load_file"]


def load_file(
    filename: str | PathLike[str], device: str | int = "cpu", *, backend: str = "mmap"
) -> dict[str, torch.Tensor]:
    """As safetensors.torch.load_file(): all tensors of a file.

    Each has memory of its own, which is freed with it. Those for another device are copied to it one by one.
    """
    with safe_open(filename, framework="pt", device=device, backend=backend) as file:
        return file.get_tensors()
