# SPDX-License-Identifier: MIT OR Apache-2.0
"""The loaders, one per module. A module is imported only when its loader is used."""

from collections.abc import Mapping
from typing import Any, Protocol

NAMES = (
    "dmabuf-dio-torch",
    "dmabuf-dio-numpy",
    "safetensors-numpy",
    "safetensors-torch",
    "fastsafetensors",
    "runai",
    "instanttensor",
    "torch-mmap",
    "numpy-fromfile",
)


class Loader(Protocol):
    """The interface of each module."""

    PACKAGE: str
    NOTE: str | None

    def load(self, path: str) -> Mapping[str, Any]:
        """The tensors of the file, in memory, owned by the caller; dropping them frees the memory."""


def module_of(name: str) -> str:
    return f"loaders.{name.replace('-', '_')}_loader"
