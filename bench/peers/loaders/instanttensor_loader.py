# SPDX-License-Identifier: MIT OR Apache-2.0
"""InstantTensor. It loads to GPUs only; it is tried in case a later version supports more."""

import torch
from instanttensor import safe_open

PACKAGE = "instanttensor"
NOTE: str | None = None


def load(path: str) -> dict[str, torch.Tensor]:
    with safe_open(path, framework="pt", device="cpu") as file:
        return dict(file.tensors())
