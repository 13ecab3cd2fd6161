# SPDX-License-Identifier: MIT OR Apache-2.0
# pyright: basic, reportPrivateUsage=false, reportAttributeAccessIssue=false, reportMissingModuleSource=false
"""All tensors of a model on a CUDA or HIP device: the disk fills registered memory while the device empties it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch  # type: ignore[import-not-found, unused-ignore]  # pyright: ignore[reportMissingImports]

from ._as_torch import layout
from ._native import _load_to_device

if TYPE_CHECKING:
    from ._native import Model

# A driver's library in place of the vendor's
library: str | None = None


def loads_to(device: Any) -> bool:
    """Whether a device is one of CUDA or HIP."""
    return device is not None and device.type == "cuda"


def load(model: Model, device: Any, report: dict[str, int]) -> dict[str, Any]:
    """The tensors by name, in the order of the files. torch allocates their memory. `report`: to be added to."""
    found: dict[str, Any] = {}
    targets: list[tuple[int, int]] = []
    for number, name in enumerate(model.keys()):
        dtype, shape = layout(model[name])
        found[name] = allocate(shape, dtype, device)
        if model[name].nbytes:
            targets.append((number, found[name].data_ptr()))
    if targets:
        # torch may use the memory for what it has not done yet: the copies wait for the stream.
        done = _load_to_device(model, targets, *current(device), None, library)
        for key, value in {"requested": done["copied"], "read": done["read"], "reads": done["reads"]}.items():
            report[key] += int(value)
    return found


def allocate(shape: tuple[int, ...], dtype: Any, device: Any) -> Any:
    """A tensor with undefined content."""
    return torch.empty(shape, dtype=dtype, device=device)


def current(device: Any) -> tuple[str, int, int]:
    """The vendor of a device, its number, and torch's stream there."""
    number = torch.cuda.current_device() if device.index is None else device.index
    return "hip" if torch.version.hip else "cuda", number, torch.cuda.current_stream(device).cuda_stream
