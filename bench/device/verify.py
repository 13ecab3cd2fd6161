# SPDX-License-Identifier: MIT OR Apache-2.0
"""The tensors that are on a device, compared there with what content.py writes, byte for byte."""

from collections.abc import Mapping
from typing import Any

import torch
from content import FACTOR, Layout

STEP = 64 << 20


def signed(word: int) -> int:
    """The same 64 bits: torch computes modulo 2^64, with signs."""
    return word - (1 << 64) if word >= 1 << 63 else word


def expected(begin: int, end: int, seed: int, device: torch.device) -> torch.Tensor:
    """The bytes begin to end of a data section."""
    words = torch.arange(begin // 8, -(-end // 8), dtype=torch.int64, device=device)
    words.mul_(signed(FACTOR)).add_(signed(seed))
    return words.view(torch.uint8)[begin % 8:begin % 8 + end - begin]


def differing(tensors: Mapping[str, Any], layout: Layout, seed: int, device: torch.device) -> str | None:
    """The first tensor that is not as it is to be, as text; None if every byte is correct."""
    if tensors.keys() != layout.tensors.keys():
        return f"{len(tensors)} tensors were loaded, {len(layout.tensors)} are in the file, or other names"
    names, wrong = [], []
    for name, (_, shape, begin, end) in layout.tensors.items():
        tensor = tensors[name]
        if list(tensor.shape) != shape or tensor.nbytes != end - begin or tensor.device != device:
            return f"tensor {name} has shape {list(tensor.shape)} and {tensor.nbytes} bytes on {tensor.device}, " \
                   f"not {shape} and {end - begin} on {device}"
        got = tensor.reshape(-1).view(torch.uint8)
        for at in range(begin, end, STEP):
            stop = min(at + STEP, end)
            names.append(name)
            wrong.append((got[at - begin:stop - begin] != expected(at, stop, seed, device)).any())
    # The device is waited for once.
    found = torch.stack(wrong).nonzero().flatten().tolist() if wrong else []
    return f"tensor {names[found[0]]} differs" if found else None
