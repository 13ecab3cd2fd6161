# SPDX-License-Identifier: MIT OR Apache-2.0
"""The content of a measured file: words that encode their position; and its comparison, byte for byte.

Word i of the data section, 8 bytes in little endian, is (i * FACTOR + seed) modulo 2^64; of a last
word that does not fit, the first bytes.
"""

import json
import os
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

FACTOR = 0x9E3779B97F4A7C15
STEP = 8 << 20

Bytes = npt.NDArray[np.uint8]


class Tensor(NamedTuple):
    """One entry of the header; begin and end count from the start of the data section."""

    dtype: str
    shape: list[int]
    begin: int
    end: int


class Layout(NamedTuple):
    """The positions of the tensors of a safetensors file."""

    data_begin: int
    tensors: dict[str, Tensor]

    @classmethod
    def of_file(cls, path: str) -> Self:
        with open(path, "rb") as file:
            start = file.read(8)
            size = os.fstat(file.fileno()).st_size
            if len(start) < 8 or 8 + struct.unpack("<Q", start)[0] > size:
                raise ValueError(f"{path} is not a safetensors file, or it is cut off in its header")
            header = json.loads(file.read(struct.unpack("<Q", start)[0]))
            data_begin = file.tell()
        tensors = {name: Tensor(entry["dtype"], entry["shape"], *entry["data_offsets"])
                   for name, entry in header.items() if name != "__metadata__"}
        end = data_begin + max((tensor.end for tensor in tensors.values()), default=0)
        if end > size:
            raise ValueError(f"{path} is cut off: its tensors need {end} bytes, it has {size}")
        return cls(data_begin, tensors)

    @property
    def tensor_bytes(self) -> int:
        return sum(tensor.end - tensor.begin for tensor in self.tensors.values())


def expected(begin: int, end: int, seed: int) -> Bytes:
    """The bytes begin to end of a data section."""
    words = np.arange(begin // 8, -(-end // 8), dtype="<u8")
    words *= np.uint64(FACTOR)
    words += np.uint64(seed)
    return words.view(np.uint8)[begin % 8:begin % 8 + end - begin]


def as_bytes(tensor: Any) -> Bytes:
    """The memory of a numpy array or a torch tensor, not copied."""
    if isinstance(tensor, np.ndarray):
        return tensor.reshape(-1).view(np.uint8)
    import torch
    return tensor.reshape(-1).view(torch.uint8).numpy()


def differing_byte(tensors: Mapping[str, Any], layout: Layout, seed: int) -> str | None:
    """The first error in `tensors`, as text; None if every byte is correct."""
    if tensors.keys() != layout.tensors.keys():
        return f"{len(tensors)} tensors were loaded, {len(layout.tensors)} are in the file, or other names"
    for name, (_, shape, begin, end) in layout.tensors.items():
        got = as_bytes(tensors[name])
        if list(tensors[name].shape) != shape or got.size != end - begin:
            return f"tensor {name} has shape {list(tensors[name].shape)} and {got.size} bytes, " \
                   f"not {shape} and {end - begin}"
        for at in range(begin, end, STEP):
            stop = min(at + STEP, end)
            wrong = got[at - begin:stop - begin] != expected(at, stop, seed)
            if wrong.any():
                return f"tensor {name} differs at its byte {at - begin + int(wrong.argmax())}"
    return None


def write(path: str, data_bytes: int, count: int, seed: int) -> None:
    """A file of `count` tensors, nearly equal in size, of four types in turn."""
    types = {"F32": 4, "F16": 2, "BF16": 2, "I8": 1, "U8": 1}
    size = data_bytes // count // 8 * 8
    header = {}
    for index in range(count):
        dtype, item = list(types.items())[index % len(types)]
        # The last one has an odd size, if its type allows that, so that the last word is partial.
        bytes_ = size if index < count - 1 or item > 1 else size - 5
        header[f"layers.{index:05}.weight"] = {
            "dtype": dtype, "shape": [bytes_ // item],
            "data_offsets": [index * size, index * size + bytes_]}
    end = header[f"layers.{count - 1:05}.weight"]["data_offsets"][1]
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for at in range(0, end, STEP):
            file.write(expected(at, min(at + STEP, end), seed).tobytes())


def flip(path: str, at: int) -> None:
    """Flips one bit of the byte `at` of the data section of a file, for tests; a second call restores it."""
    with open(path, "r+b") as file:
        at += Layout.of_file(path).data_begin
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 0x10]))
