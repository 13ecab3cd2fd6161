# SPDX-License-Identifier: MIT OR Apache-2.0
"""compare.py PROGRAM FOLDER: writes models with the Python packages safetensors and gguf, and compares the
tensors that PROGRAM (crates/dmabuf-dio-tensors/examples/tensors.rs) lists and loads with them, byte by byte."""

import json
import pathlib
import re
import shutil
import subprocess
import sys

import gguf
import ml_dtypes
import numpy
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from safetensors import SafetensorError, TensorSpec, safe_open, serialize_file
from safetensors.numpy import save_file

LINE = re.compile(r"^(.*) (\S+) \[([\d, ]*)\] (\d+)\.\.(\d+) (\S+)$")
# name: (type, shape, bytes)
Tensors = dict[str, tuple[str, list[int], bytes]]

PLAIN = {
    "BOOL": numpy.bool_, "U8": numpy.uint8, "I8": numpy.int8, "U16": numpy.uint16, "I16": numpy.int16,
    "U32": numpy.uint32, "I32": numpy.int32, "U64": numpy.uint64, "I64": numpy.int64, "F16": numpy.float16,
    "F32": numpy.float32, "F64": numpy.float64, "C64": numpy.complex64, "BF16": ml_dtypes.bfloat16,
    "F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E5M2": ml_dtypes.float8_e5m2, "F8_E8M0": ml_dtypes.float8_e8m0fnu,
    "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz, "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
}
# The names in the writer's interface
BYTES = {
    "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz", "F4": "float4_e2m1fn_x2",
}
random = numpy.random.default_rng(1)


def found(program: str, model: pathlib.Path) -> Tensors:
    """The tensors that our program lists, with the bytes that it loads."""
    lines = subprocess.run([program, model], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    out = model.parent / "extracted"
    shutil.rmtree(out, ignore_errors=True)
    subprocess.run([program, model, "extract", out], check=True, stdout=subprocess.DEVNULL)
    tensors: Tensors = {}
    for line in lines:
        match = LINE.match(line)
        if match:
            name, dtype, shape, start, end, file = match.groups()
            content = (out / str(len(tensors))).read_bytes()
            with open(file, "rb") as stored:
                stored.seek(int(start))
                assert stored.read(int(end) - int(start)) == content, f"{name}: not what is in the file"
            tensors[name] = dtype, [int(size) for size in shape.split(",") if size.strip()], content
    return tensors


def same(what: str, wanted: Tensors, ours: Tensors) -> None:
    assert ours.keys() == wanted.keys(), f"{what}: {ours.keys() ^ wanted.keys()}"
    for name, tensor in wanted.items():
        assert ours[name][:2] == tensor[:2], f"{what}: {name}: {ours[name][:2]}, not {tensor[:2]}"
        assert ours[name][2] == tensor[2], f"{what}: {name}: other bytes"
    print(f"ok {what}: {len(wanted)} tensors, {sum(len(one[2]) for one in wanted.values())} bytes")


def arrays(prefix: str) -> dict[str, numpy.ndarray]:
    """Two of each type that NumPy can have, one of them larger than a page."""
    all_arrays = {}
    for name, dtype in PLAIN.items():
        if name in BYTES or name == "BOOL":
            continue
        for shape in (3, 5), (7, 11, 97):
            size = numpy.dtype(dtype).itemsize
            content = random.integers(0, 256, [*shape, size], numpy.uint8)
            all_arrays[f"{prefix}{name}.{len(shape)}"] = content.view(dtype).reshape(shape)
    all_arrays[f"{prefix}BOOL"] = random.integers(0, 2, [70, 70]).astype(numpy.bool_)
    all_arrays[f"{prefix}F32.scalar"] = numpy.array(3.5, numpy.float32)
    all_arrays[f"{prefix}F32.empty"] = numpy.zeros((4, 0), numpy.float32)
    return all_arrays


def of(all_arrays: dict[str, numpy.ndarray], prefix: str) -> Tensors:
    def dtype(name: str) -> str:
        return name.removeprefix(prefix).split(".")[0]
    return {name: (dtype(name), list(array.shape), array.tobytes()) for name, array in all_arrays.items()}


def safetensors_files(program: str, folder: pathlib.Path) -> None:
    path = folder / "numpy.safetensors"
    written = arrays("")
    save_file(written, path, {"format": "np"})
    same("safetensors by numpy", of(written, ""), found(program, path))

    path = folder / "bytes.safetensors"
    wanted: Tensors = {}
    for name, theirs in BYTES.items():
        content = random.integers(0, 256, 5000, numpy.uint8).tobytes()
        if name == "F4":
            wanted[name] = name, [100, 100], content
        else:
            wanted[name] = name, [50, len(content) // 50 // (2 if name == "BF16" else 1)], content
    given, kept = {}, []
    for name, (_, shape, data) in wanted.items():
        # Two of this type are one element in the writer's interface.
        shape = [shape[0], shape[1] // 2] if name == "F4" else shape
        content = numpy.frombuffer(data, numpy.uint8)
        kept.append(content)
        given[name] = TensorSpec(
            dtype=BYTES[name], shape=shape, data_ptr=content.ctypes.data, data_len=content.nbytes)
    serialize_file(given, path, None)
    same("safetensors of small types", wanted, found(program, path))
    with safe_open(path, "np") as other:
        assert set(other.keys()) == wanted.keys()
        assert other.get_slice("F8_E4M3").get_dtype() == "F8_E4M3"


def safetensors_shards(program: str, folder: pathlib.Path) -> None:
    wanted: Tensors = {}
    index: dict[str, str] = {}
    for number in range(3):
        written = arrays(f"layer{number}_")
        name = f"model-{number + 1:05}-of-00003.safetensors"
        save_file(written, folder / name, {"format": "pt"})
        wanted |= of(written, f"layer{number}_")
        index |= dict.fromkeys(written, name)
    text = json.dumps({"metadata": {"total_size": sum(len(one[2]) for one in wanted.values())}, "weight_map": index})
    (folder / "model.safetensors.index.json").write_text(text)
    same("safetensors shards", wanted, found(program, folder / "model.safetensors.index.json"))


def gguf_tensors() -> list[tuple[str, numpy.ndarray, GGMLQuantizationType, list[int]]]:
    tensors = []
    for dtype, (elements, size) in GGML_QUANT_SIZES.items():
        # The package lacks the length of the structure.
        if dtype == GGMLQuantizationType.Q8_1:
            continue
        content = random.integers(0, 256, (3, 7, 2 * size), numpy.uint8)
        tensors.append((f"{dtype.name}.weight", content, dtype, [3, 7, 2 * elements]))
    return tensors


def gguf_file(program: str, folder: pathlib.Path, split: int, order: gguf.GGUFEndian = gguf.GGUFEndian.LITTLE) -> None:
    path = folder / "q.gguf"
    writer = gguf.GGUFWriter(path, "llama", split_max_tensors=split, endianess=order)
    writer.add_name("größe")
    writer.add_context_length(4096)
    writer.add_token_list(["<s>", "", "ß", "x" * 300] * 1000)
    writer.add_token_scores([0.5, -1.0])
    writer.add_bool("general.some", True)
    wanted: Tensors = {}
    for name, content, dtype, shape in gguf_tensors():
        # Plain types are given as arrays, the others as bytes.
        plain = {"F32": "F32", "F16": "F16", "F64": "F64", "I8": "I8", "I16": "I16", "I32": "I32", "I64": "I64"}
        if dtype.name in plain:
            # The writer swaps in place.
            writer.add_tensor(name, content.view(PLAIN[dtype.name]).copy())
            if order == gguf.GGUFEndian.BIG:
                content = content.view(PLAIN[dtype.name]).byteswap()
        else:
            writer.add_tensor(name, content, raw_dtype=dtype)
        wanted[name] = dtype.name, shape, content.tobytes()
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    if split:
        path = next(folder.glob("q-00001-of-*.gguf"))
    ours = found(program, path)
    same(f"GGUF, {order.name.lower()}-endian{', split' if split else ''}", wanted, ours)
    text = subprocess.run([program, path], check=True, stdout=subprocess.PIPE, text=True).stdout
    for key in ('general.name = String("größe")', "llama.context_length = U32(4096)",
                'tokenizer.ggml.scores = Array(F32([0.5, -1.0]))', "general.some = Bool(true)"):
        assert key in text, f"{key} is not in {text[:2000]}"
    for part in sorted(folder.glob("q*.gguf")):
        for tensor in gguf.GGUFReader(part).tensors:
            shape = [int(size) for size in reversed(tensor.shape)]
            expected = tensor.tensor_type.name, shape, tensor.data.tobytes()
            assert ours[tensor.name] == expected, f"{tensor.name}: the reader of gguf finds other bytes"


def refused(program: str, folder: pathlib.Path) -> None:
    """What the other reader refuses, ours refuses."""
    good = (folder / "numpy.safetensors").read_bytes()
    for name, content in {"cut": good[:-1], "long": good + b"x", "header": b"\xff" * 8 + good[8:]}.items():
        path = folder / f"{name}.safetensors"
        path.write_bytes(content)
        try:
            with safe_open(path, "np"):
                raise AssertionError(f"{name}: safetensors accepts it")
        except SafetensorError:
            pass
        result = subprocess.run([program, path], check=False, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert result.returncode == 1 and str(path) in result.stderr, result.stderr
    print("ok what safetensors refuses is refused")


def main() -> None:
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    for name, test in {"files": safetensors_files, "shards": safetensors_shards}.items():
        (folder / name).mkdir()
        test(program, folder / name)
    refused(program, folder / "files")
    for split in 0, 7:
        for order in gguf.GGUFEndian:
            here = folder / f"gguf-{split}-{order.name}"
            here.mkdir()
            gguf_file(program, here, split, order)


if __name__ == "__main__":
    main()
