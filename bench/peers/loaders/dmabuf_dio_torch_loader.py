# SPDX-License-Identifier: MIT OR Apache-2.0
"""dmabuf_dio.torch.load_file: direct I/O into memory of the process, of which each tensor is a view."""

import torch
from dmabuf_dio.torch import load_file

PACKAGE = "dmabuf-dio"
NOTE: str | None = None


def load(path: str) -> dict[str, torch.Tensor]:
    return load_file(path)
