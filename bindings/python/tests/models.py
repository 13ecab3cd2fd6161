# SPDX-License-Identifier: MIT OR Apache-2.0
"""Model files, written down from the formats' descriptions."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import cast

Tensor = tuple[str, list[int], bytes]


def safetensors(
    path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None, pad: int = 8
) -> Path:
    """A safetensors file with these tensors, one behind the other. `pad`: what the header's length is a multiple of."""
    header: dict[str, object] = {"__metadata__": metadata} if metadata else {}
    at = 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % pad)
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


def gguf(path: Path, tensors: dict[str, tuple[int, list[int], bytes]], metadata: dict[str, object]) -> Path:
    """A GGUF file, version 3: tensors by number of the type, shape (the outermost first) and data."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value.encode())) + value.encode()

    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    for key, value in metadata.items():
        out += text(key)
        if isinstance(value, str):
            out += struct.pack("<I", 8) + text(value)
        elif isinstance(value, bool):
            out += struct.pack("<I?", 7, value)
        elif isinstance(value, int):
            out += struct.pack("<II", 4, value)
        elif isinstance(value, float):
            out += struct.pack("<If", 6, value)
        else:
            assert isinstance(value, list)
            numbers = cast("list[int]", value)
            out += struct.pack("<IIQ", 9, 5, len(numbers)) + struct.pack(f"<{len(numbers)}i", *numbers)
    at, data = 0, b""
    for name, (kind, shape, content) in tensors.items():
        out += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *reversed(shape))
        out += struct.pack("<IQ", kind, at)
        content += bytes(-len(content) % 32)
        data += content
        at += len(content)
    path.write_bytes(out + bytes(-len(out) % 32) + data)
    return path
