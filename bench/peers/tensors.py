# SPDX-License-Identifier: MIT OR Apache-2.0
"""tensors.py FRAMEWORK FOLDER: get_tensor() of safetensors and of dmabuf_dio, every byte looked at, in turns, in one run."""

import os
import random
import statistics
import sys
import time
from pathlib import Path

import numpy
import safetensors
import safetensors.numpy

import dmabuf_dio

RUNS = 5
# How many tensors, of how many bytes.
FILES = [(70_000, 64), (20_000, 4 << 10), (2_000, 256 << 10), (64, 8 << 20)]


def write(folder: Path, count: int, size: int) -> Path:
    path = folder / f"bench-{count}x{size}.safetensors"
    arrays = {f"layers.{number:05}.weight": numpy.full(size, number % 251, numpy.uint8) for number in range(count)}
    safetensors.numpy.save_file(arrays, path)
    return path


def forget(path: Path) -> None:
    """Drops a file from the page cache."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measure(open_, framework: str, path: Path, in_order: bool) -> tuple[float, float]:
    """Microseconds and CPU microseconds of a request, with a share of opening the file."""
    cpu, wall = time.process_time(), time.perf_counter()
    with open_(path, framework) as file:
        names = file.offset_keys()
        order = names if in_order else random.Random(1).sample(names, len(names))
        for name in order:
            file.get_tensor(name).sum()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return wall / len(names) * 1e6, cpu / len(names) * 1e6


def main(framework: str, folder: Path) -> None:
    print("| tensors | order | page cache | safetensors: us (CPU) | dmabuf-dio: us (CPU) | of theirs |")
    print("|---|---|---|---|---|---|")
    for count, size in FILES:
        path = write(folder, count, size)
        for in_order in (True, False):
            for warm in (False, True):
                found = {safetensors.safe_open: [], dmabuf_dio.safe_open: []}
                for _ in range(RUNS):
                    for open_, results in found.items():
                        if not warm:
                            forget(path)
                        results.append(measure(open_, framework, path, in_order))
                (theirs, their_cpu), (ours, our_cpu) = (
                    [statistics.median(values) for values in zip(*results)] for results in found.values()
                )
                print(
                    f"| {count} of {size} bytes | {'file' if in_order else 'random'} | {'warm' if warm else 'cold'} |"
                    f" {theirs:.1f} ({their_cpu:.1f}) | {ours:.1f} ({our_cpu:.1f}) | {ours / theirs:.2f} |",
                    flush=True,
                )
        path.unlink()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
