# SPDX-License-Identifier: MIT OR Apache-2.0
"""Reads a model with the loaders that people use, and prints a line for each tensor:
read_model.py PATH, a GGUF file or a folder of safetensors. It fails unless what it maps are files in
memory, or with --from-disk unless they are not."""

import hashlib
import json
import pathlib
import sys

import gguf
import safetensors


def digest(name: str, kind: str, shape: tuple[int, ...], content: bytes) -> None:
    print(name, kind, shape, hashlib.sha256(content).hexdigest())


def read_gguf(path: pathlib.Path) -> None:
    reader = gguf.GGUFReader(path)
    check_maps(path.name)
    for tensor in reader.tensors:
        shape = tuple(int(length) for length in tensor.shape)
        digest(tensor.name, tensor.tensor_type.name, shape, tensor.data.tobytes())


def read_safetensors(folder: pathlib.Path) -> None:
    print((folder / "config.json").read_text())
    index = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    for shard in sorted(set(index.values())):
        with safetensors.safe_open(folder / shard, framework="numpy") as file:
            check_maps(shard)
            for name in file.keys():
                assert index[name] == shard
                tensor = file.get_tensor(name)
                digest(name, str(tensor.dtype), tensor.shape, tensor.tobytes())


def check_maps(name: str) -> None:
    """Checks that the file is mapped: the memory itself, and no copy of it."""
    lines = pathlib.Path("/proc/self/maps").read_text().splitlines()
    in_memory = [line for line in lines if "/memfd:dmabuf-dio" in line]
    wanted = "--from-disk" not in sys.argv
    assert bool(in_memory) == wanted, f"{name}: {in_memory}"


if __name__ == "__main__":
    path = pathlib.Path(sys.argv[1])
    read_safetensors(path) if path.is_dir() else read_gguf(path)
