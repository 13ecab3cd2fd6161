# SPDX-License-Identifier: MIT OR Apache-2.0
"""Model files, written down from the formats' descriptions."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import cast

Tensor = tuple[str, list[int], bytes]


def safetensors(
    path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None, pad: int = 8, start: int = 0
) -> Path:
    """A safetensors file with these tensors, one behind the other. `pad`: what the place of the first is a multiple of,
    or `start` bytes behind one."""
    header: dict[str, object] = {"__metadata__": metadata} if metadata else {}
    at = 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * ((start - 8 - len(text)) % pad)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))
    return path


def index(folder: Path, shards: dict[str, dict[str, Tensor]]) -> Path:
    """A model in several files, and its index."""
    weights: dict[str, str] = {}
    for name, tensors in shards.items():
        safetensors(folder / name, tensors)
        weights |= dict.fromkeys(tensors, name)
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {}, "weight_map": weights}))
    return path


def gguf(
    path: Path, tensors: dict[str, tuple[int, list[int], bytes]], metadata: dict[str, object], order: str = "<"
) -> Path:
    """A GGUF file, version 3: tensors by number of the type, shape (the outermost first) and data."""

    def pack(form: str, *values: object) -> bytes:
        return struct.pack(order + form, *values)

    def text(value: str | bytes) -> bytes:
        data = value.encode() if isinstance(value, str) else value
        return pack("Q", len(data)) + data

    out = b"GGUF" + pack("IQQ", 3, len(tensors), len(metadata))
    for key, value in metadata.items():
        out += text(key)
        if isinstance(value, (str, bytes)):
            out += pack("I", 8) + text(value)
        elif isinstance(value, bool):
            out += pack("I?", 7, value)
        elif isinstance(value, int):
            out += pack("II", 4, value)
        elif isinstance(value, float):
            out += pack("If", 6, value)
        elif isinstance(value, list) and isinstance(value[0], (str, bytes)):
            words = cast("list[str | bytes]", value)
            out += pack("IIQ", 9, 8, len(words)) + b"".join(map(text, words))
        else:
            assert isinstance(value, list)
            numbers = cast("list[int]", value)
            out += pack("IIQ", 9, 5, len(numbers)) + pack(f"{len(numbers)}i", *numbers)
    at, data = 0, b""
    for name, (kind, shape, content) in tensors.items():
        out += text(name) + pack("I", len(shape)) + pack(f"{len(shape)}Q", *reversed(shape)) + pack("IQ", kind, at)
        content += bytes(-len(content) % 32)
        data += content
        at += len(content)
    path.write_bytes(out + bytes(-len(out) % 32) + data)
    return path
