# SPDX-License-Identifier: MIT OR Apache-2.0
# pyright: basic, reportPrivateUsage=false, reportAttributeAccessIssue=false, reportMissingModuleSource=false
"""torch tensors on CUDA and HIP devices: the disk fills registered memory while the device empties it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import torch  # type: ignore[import-not-found, unused-ignore]  # pyright: ignore[reportMissingImports]

from ._as_torch import layout
from ._device import opened, with_room
from ._index import together
from ._layout import swaps
from ._native import CancelToken, _Reader

if TYPE_CHECKING:
    from ._native import DeviceTensor, Model, TensorInfo, _Device

    # Tensors by their places, which of their bytes, and where these belong; and the stream to wait for
    _Targets = tuple[list[tuple[int, tuple[int, int], int]], int]

# Bytes of tensors that are allocated before the load of them begins
_BATCH = 512 << 20

class Ring:
    """Tensors by way of the ring of a device. `most`: those of fewer bytes are not worth a load by themselves.
    `report`: to be added to."""

    takes_all = True

    def __init__(self, model: Model, device: Any, most: int, report: dict[str, int]) -> None:
        self._model, self._place, self._most, self._report = model, device, most, report
        self._names = model.keys()
        self._position = {name: number for number, name in enumerate(self._names)}
        self._opened: _Device | None = None

    @property
    def _device(self) -> _Device:
        if self._opened is None:
            self._opened = opened(self._place)
        return self._opened

    def takes(self, info: TensorInfo) -> bool:
        """Whether a tensor is worth a load."""
        return info.nbytes > self._most

    def tensors(self, names: list[str]) -> dict[str, Any]:
        """Tensors by name."""
        numbers = [self._position[name] for name in names]
        reader = _Reader(self._model)
        batches, total = reader.batches(numbers, _BATCH)
        if self._device.integrated:
            owned, done = with_room(lambda: self._device.own(reader, numbers, total))
            self._count(done)
            return {name: adopted(tensor) for name, tensor in zip(names, owned)}
        found: dict[str, Any] = {}
        token = CancelToken()
        with ThreadPoolExecutor(1, "dmabuf-dio-device") as pool:
            try:
                # One batch is loaded while torch gets memory for the next.
                loads = [pool.submit(self._load, self._allocated(batch, found), total, token) for batch in batches]
                for load in loads:
                    load.result()
            finally:
                token.cancel()
        return {name: in_order(tensor, self._model[name]) for name, tensor in found.items()}

    def _allocated(self, numbers: list[int], found: dict[str, Any]) -> _Targets:
        """Where tensors belong, in new memory."""
        targets: list[tuple[int, tuple[int, int], int]] = []
        for number in numbers:
            info = self._model[self._names[number]]
            dtype, shape = layout(info)
            tensor = found[info.name] = allocate(shape, dtype, self._place)
            targets.append((number, (0, info.nbytes), tensor.data_ptr()))
        # torch may use the memory for what it has not done yet: the copies wait for this thread's stream.
        return targets, stream(self._place)

    def part(self, name: str, elements: list[tuple[int, int]]) -> Any:
        """Elements of a tensor, the first and last of each dimension; None unless they lie together and are worth it."""
        info = self._model[name]
        run = together(elements, info.shape)
        if run is None or info.block[0] > 1:
            return None
        first, last = (at * info.block[1] for at in run)
        if last - first <= self._most:
            return None
        dtype, shape = layout(info, tuple(last - first for first, last in elements))
        found = allocate(shape, dtype, self._place)
        targets = [(self._position[name], (first, last), found.data_ptr())]
        self._load((targets, stream(self._place)), last - first)
        return in_order(found, info)

    def _load(self, placed: _Targets, total: int, token: CancelToken | None = None) -> None:
        targets, stream = placed
        targets = [target for target in targets if target[1][0] < target[1][1]]
        if targets:
            self._count(self._device.load(self._model, targets, stream, total, token))

    def _count(self, done: dict[str, float]) -> None:
        copied = done["copied"] or done["read"]
        for key, value in {"requested": copied, "read": done["read"], "reads": done["reads"]}.items():
            self._report[key] += int(value)


def allocate(shape: tuple[int, ...], dtype: Any, device: Any) -> Any:
    """A tensor with undefined content."""
    return torch.empty(shape, dtype=dtype, device=device)


def stream(device: Any) -> int:
    """torch's current stream on a device."""
    return int(torch.cuda.current_stream(device).cuda_stream)


def adopted(tensor: DeviceTensor) -> Any:
    """The tensor as one of torch, in the same memory. Packed and quantised types that torch lacks are bytes."""
    dtype, shape = layout(tensor)
    if not tensor.nbytes:
        return allocate(shape, dtype, torch.device(tensor.device.replace("hip", "cuda")))
    content = tensor.bytes()
    # torch ignores what DLPack says of it, and a kernel that writes there would end the context.
    if content.__cuda_array_interface__["data"][1]:
        raise BufferError("torch has no read-only tensors: load with writable=True")
    return in_order(shared(content).view(dtype).reshape(shape), tensor)


def shared(tensor: DeviceTensor) -> Any:
    """Bytes as a tensor of torch, in the same memory."""
    return torch.from_dlpack(tensor)


def in_order(tensor: Any, info: Any) -> Any:
    """A tensor whose elements have their bytes in the order of the processor's."""
    if not swaps(info):
        return tensor
    size = info.block[1]
    pairs = tensor.contiguous().view(torch.uint8).reshape(-1, size).flip(1)
    return pairs.contiguous().view(tensor.dtype).reshape(tensor.shape)
