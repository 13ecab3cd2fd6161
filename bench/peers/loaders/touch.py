# SPDX-License-Identifier: MIT OR Apache-2.0
"""Reads what a mapping has only promised."""

import ctypes
from collections.abc import Mapping

import numpy as np
import torch

PAGE = 4096
NOTE = "a mapping of the file: one byte of every 4 KiB page is read before the time ends"


def every_page(tensors: Mapping[str, torch.Tensor]) -> None:
    """One byte of every page from the first tensor to the last, all of them in one mapping."""
    begin = min(tensor.data_ptr() for tensor in tensors.values())
    end = max(tensor.data_ptr() + tensor.nbytes for tensor in tensors.values())
    memory = np.frombuffer((ctypes.c_uint8 * (end - begin)).from_address(begin), dtype=np.uint8)
    # From page start to page start, or the first and the last page might be left out.
    memory[:1].max()
    memory[-begin % PAGE::PAGE].max(initial=0)
