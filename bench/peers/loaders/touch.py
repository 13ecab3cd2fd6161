# SPDX-License-Identifier: MIT OR Apache-2.0
"""Faults in the pages of a mapping."""

import ctypes
from collections.abc import Mapping

import numpy as np
import torch

PAGE = 4096
NOTE = "a mapping of the file: one byte of every 4 KiB page is read before the time ends"


def every_page(tensors: Mapping[str, torch.Tensor]) -> None:
    """Reads one byte of every page from the first tensor to the last, which are in one mapping."""
    begin = min(tensor.data_ptr() for tensor in tensors.values())
    end = max(tensor.data_ptr() + tensor.nbytes for tensor in tensors.values())
    memory = np.frombuffer((ctypes.c_uint8 * (end - begin)).from_address(begin), dtype=np.uint8)
    # Aligned to pages, so that the first and the last page are included.
    memory[:1].max()
    memory[-begin % PAGE::PAGE].max(initial=0)
