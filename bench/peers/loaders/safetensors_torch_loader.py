# SPDX-License-Identifier: MIT OR Apache-2.0
"""safetensors.torch.load_file: torch tensors over a mapping of the file."""

import torch
from safetensors.torch import load_file

from loaders import touch

PACKAGE = "safetensors"
NOTE: str | None = touch.NOTE


def load(path: str) -> dict[str, torch.Tensor]:
    tensors = load_file(path)
    touch.every_page(tensors)
    return tensors
