# SPDX-License-Identifier: MIT OR Apache-2.0
"""torch.from_file: one mapping of the file, of which each tensor is a view."""

import os

import torch

from content import Layout
from loaders import touch

PACKAGE = "torch"
NOTE: str | None = touch.NOTE

TYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I8": torch.int8, "U8": torch.uint8}


def load(path: str) -> dict[str, torch.Tensor]:
    layout = Layout.of_file(path)
    data = torch.from_file(path, size=os.path.getsize(path), dtype=torch.uint8)[layout.data_begin:]
    tensors = {name: data[begin:end].view(TYPES[dtype]).reshape(shape)
               for name, (dtype, shape, begin, end) in layout.tensors.items()}
    touch.every_page(tensors)
    return tensors
