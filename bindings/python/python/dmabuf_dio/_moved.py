# SPDX-License-Identifier: MIT OR Apache-2.0
# pyright: basic, reportPrivateUsage=false, reportAttributeAccessIssue=false, reportMissingModuleSource=false
"""Tensors larger than the window, for another device: they pass through the window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch  # type: ignore[import-not-found, unused-ignore]  # pyright: ignore[reportMissingImports]

from ._as_torch import as_tensor
from ._native import _Reader

if TYPE_CHECKING:
    from ._native import Model


def moved(model: Model, name: str, device: Any, window: int) -> Any:
    """A tensor on a device, read in pieces: the next ones are read while one is copied."""
    shape = model[name].shape
    dim = next(dim for dim, size in enumerate(shape) if size > 1)
    step = max(1, shape[dim] * (window // 4) // model[name].nbytes)
    starts = range(0, shape[dim], step)
    number = model.keys().index(name)
    reader = _Reader(model, window, None, [(number, (dim, [], [(at, min(at + step, shape[dim]))])) for at in starts])
    wanted = reader.want(list(range(len(starts))))
    whole: Any = None
    for place, at in enumerate(starts):
        piece = as_tensor(reader.tensor(place))
        if whole is None:
            whole = torch.empty(shape, dtype=piece.dtype, device=device)
        whole.narrow(dim, at, piece.shape[dim]).copy_(piece)
        # Its memory is free before the next is waited for.
        del piece
    del wanted
    return whole
