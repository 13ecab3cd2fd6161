# SPDX-License-Identifier: MIT OR Apache-2.0
"""InstantTensor. It loads to GPUs only, and is asked, so that a version that can more shows up."""

import torch
from instanttensor import safe_open

PACKAGE = "instanttensor"
NOTE: str | None = None


def load(path: str) -> dict[str, torch.Tensor]:
    with safe_open(path, framework="pt", device="cpu") as file:
        return dict(file.tensors())
