# SPDX-License-Identifier: MIT OR Apache-2.0
# pyright: basic, reportAttributeAccessIssue=false, reportMissingModuleSource=false
"""Saves torch tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch  # type: ignore[import-not-found, unused-ignore]  # pyright: ignore[reportMissingImports]

from ._index import SafetensorError
from ._save import given, write

if TYPE_CHECKING:
    from os import PathLike

    from ._native import CancelToken, Report
    from ._save import Given, Place
    from .types import Progress


def save(
    tensors: dict[str, Any],
    filename: str | PathLike[str],
    metadata: dict[str, str] | None,
    progress: Progress | None,
    cancel: CancelToken | None,
) -> Report:
    """Saves tensors. Those on other devices are copied when it is their turn."""
    _check(tensors)
    # A list: it keeps the tensors until the end, whatever the program does to the dict.
    items = list(tensors.items())

    def make(index: int) -> tuple[Any, Place]:
        copy = items[index][1].detach().to("cpu").resolve_conj().resolve_neg().contiguous()
        return copy, _bytes(copy)

    return write([_given(*item) for item in items], filename, metadata, make, progress, cancel)


def _given(name: str, tensor: Any) -> Given:
    if not tensor.is_contiguous():
        raise ValueError(
            f"You are trying to save a non contiguous tensor: `{name}`. If it is a part of another one, save that alone;"
            " otherwise save what `.contiguous()` returns."
        )
    # The last two are views whose bytes are not those of the values.
    is_elsewhere = tensor.device.type != "cpu" or tensor.is_conj() or tensor.is_neg()
    dtype = str(tensor.dtype).removeprefix("torch.")
    return given(name, dtype, tuple(tensor.shape), None if is_elsewhere else _bytes(tensor))


def _bytes(tensor: Any) -> Place:
    address, length = tensor.data_ptr(), tensor.numel() * tensor.element_size()
    if length and not address:
        raise SafetensorError("Error while serializing: a tensor has no data")
    return address, length


def _check(tensors: Any) -> None:
    """Raises what safetensors does for tensors that it does not save."""
    if not isinstance(tensors, dict):
        raise ValueError(f"Expected a dict of [str, torch.Tensor] but received {type(tensors)}")
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(f"Key `{name}` is invalid, expected torch.Tensor but received {type(tensor)}")
    sparse = [name for name, tensor in tensors.items() if tensor.layout != torch.strided]
    if sparse:
        raise ValueError(
            f"You are trying to save sparse tensors: `{sparse}`. Save what `.to_dense()` returns, which may be much larger."
        )
    shared = _shared(tensors)
    if shared:
        raise RuntimeError(
            f"Some tensors share memory: {shared}. A file would have it twice, and what is loaded would not share it."
            " Save copies, or the model by safetensors.torch.save_model()."
        )


def _shared(tensors: dict[str, Any]) -> list[list[str]]:
    """The names of tensors whose bytes overlap."""
    storages: dict[Any, list[tuple[int, int, str]]] = {}
    for name, tensor in tensors.items():
        try:
            storage = tensor.untyped_storage()
            place = (tensor.device, storage.data_ptr(), storage.nbytes())
        except (NotImplementedError, RuntimeError):
            # Tensors of some kinds have no storage.
            continue
        if not tensor.is_meta and place[1] and place[2]:
            storages.setdefault(place, []).append((tensor.data_ptr(), _end(tensor), name))
    groups: list[list[str]] = []
    for areas in storages.values():
        end = 0
        for start, stop, name in sorted(areas):
            if start >= end:
                groups.append([])
            groups[-1].append(name)
            end = max(end, stop)
    return [names for names in groups if len(names) > 1]


def _end(tensor: Any) -> int:
    """The address behind a tensor's last byte."""
    if not tensor.numel():
        return int(tensor.data_ptr())
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride()))
    return int(tensor.data_ptr() + (last + 1) * tensor.element_size())
