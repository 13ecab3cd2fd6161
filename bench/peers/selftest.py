# SPDX-License-Identifier: MIT OR Apache-2.0
"""Every loader on files of both kinds: correct bytes pass, a wrong one is detected. Memory: what is over a bound is red."""

import os
import sys
import tempfile

import consumers
import content
import memory
from consumers import peaks, results
from load import attempt
from loaders import LOADERS

SIZE = 64 << 20
SEED = 0xFFFF_FFFF_FFFF_FFF1

failed = 0


def expect(what: str, holds: bool, seen: object) -> None:
    global failed
    print(f"{'pass' if holds else 'FAIL'}  {what}" + ("" if holds else f": {seen}"), flush=True)
    failed += not holds


def formula() -> None:
    """Compares the vectorised content with the formula, at an end inside a word."""
    words = b"".join(((i * content.FACTOR + SEED) % (1 << 64)).to_bytes(8, "little") for i in range(100))
    got = content.expected(16, 797, SEED).tobytes()
    expect("content is as its formula says", got == words[16:797], got[:16].hex())


def flipped(path: str, at: int) -> None:
    """Flips one bit of the byte `at` of a file; a second call restores it."""
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 0x10]))


def succeeds(name: str, kind: str, path: str, wrong_at: int) -> None:
    """A whole file, then the same with one byte changed."""
    layout = content.Layout.of_file(path)
    result, reason = attempt(name, path, SEED)
    expect(f"{name}, {kind}: every byte is right",
           result is not None and result["verified"] is True and result["bytes"] == layout.tensor_bytes
           and result["seconds"] > 0, result or reason)
    flipped(path, layout.data_begin + wrong_at)
    result, reason = attempt(name, path, SEED)
    flipped(path, layout.data_begin + wrong_at)
    tensor, begin = next((key, value.begin) for key, value in layout.tensors.items()
                         if value.begin <= wrong_at < value.end)
    expect(f"{name}, {kind}: a flipped bit is found",
           result is not None and result["verified"] is False
           and result["difference"] == f"tensor {tensor} differs at its byte {wrong_at - begin}", (result, reason))


def fails(name: str, what: str, path: str) -> None:
    result, reason = attempt(name, path, SEED)
    expect(f"{name}, {what}: fails and says {reason!r}",
           result is None and reason.startswith(f"{name}: "), (result, reason))


def memory_of(name: str, path: str, process: float, cache: float) -> None:
    """What a loader needs, as multiples of the file, within 5 %."""
    row = memory.measure(name, path)
    length = os.path.getsize(path)
    seen = (row["peak_bytes"] / length, row["cached_bytes"] / length) if "peak_bytes" in row else None
    expect(f"{name}: {process} of the file in the process, {cache} in the page cache",
           seen is not None and abs(seen[0] - process) < 0.05 and abs(seen[1] - cache) < 0.05, row)


def bounds(folder: str) -> None:
    """A program within its bound of memory, and one beyond it."""
    name = "`get_tensor`, kept"
    content.write(f"{folder}/model.safetensors", 2 * SIZE, 32, SEED)
    row = consumers.measure(name, 1, folder)
    expect(f"{name}: within its bound", "ours_process" in row and not peaks.over([results.Row(row)]), row)
    row["ours_process"] = [part + SIZE for part in row.get("ours_process", [])]
    expect(f"{name}, half of the file more: over its bound", len(peaks.over([results.Row(row)])) == 1, row)


def main() -> int:
    formula()
    # On a disk, too.
    with tempfile.TemporaryDirectory(dir=".", prefix=".dmabuf-dio-bench-") as folder:
        bounds(folder)
    # On a disk: /tmp may be in memory.
    with tempfile.TemporaryDirectory(dir=".", prefix=".dmabuf-dio-bench-") as folder:
        path = os.path.join(folder, "few.safetensors")
        content.write(path, 4 * SIZE, 8, SEED)
        memory_of("numpy-fromfile", path, process=1, cache=1)
        memory_of("torch-mmap", path, process=0, cache=1)
        memory_of("dmabuf-dio-numpy", path, process=1, cache=0)
        memory_of("dmabuf-dio-torch", path, process=1, cache=0)
    with tempfile.TemporaryDirectory() as folder:
        many, few = (os.path.join(folder, f"{kind}.safetensors") for kind in ("many", "few"))
        content.write(many, SIZE, 4096, SEED)
        content.write(few, SIZE, 8, SEED)
        short = os.path.join(folder, "short.safetensors")
        with open(few, "rb") as whole, open(short, "wb") as part:
            part.write(whole.read(os.path.getsize(few) - 8192))
        for name in LOADERS:
            succeeds(name, "many tensors", many, wrong_at=os.path.getsize(many)
                     - content.Layout.of_file(many).data_begin - 1)
            succeeds(name, "few tensors", few, wrong_at=SIZE // 2 + 4097)
            fails(name, "file that ends too early", short)
    print(f"{failed} failed" if failed else "all passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
