# SPDX-License-Identifier: MIT OR Apache-2.0
"""bench/device/run with the CPU as the device: every way has figures, a wrong byte is found, and what is missing is said."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

REPO = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.append(str(REPO / "bench/peers"))
import content  # noqa: E402
import ways  # noqa: E402

FIGURES = {"seconds", "cpu_seconds", "process_bytes", "pinned_bytes", "machine_bytes", "cached_bytes", "warm_bytes"}
SIZE = 16 << 20

failed = 0


def expect(what: str, holds: bool, seen: object) -> None:
    global failed
    print(f"{'pass' if holds else 'FAIL'}  {what}" + ("" if holds else f": {seen}"), flush=True)
    failed += not holds


def run(*options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([REPO / "bench/device/run", *options], capture_output=True, text=True,
                          env=os.environ | {"PYTHON": sys.executable, "DMABUF_DIO_CARRIED": "1"} | variables)


def measured(folder: str) -> None:
    result = pathlib.Path(folder, "result.json")
    done = run("--device", "cpu", "--sizes", "16M", "--layouts", "many", "--rounds", "2", "--dir", folder, "--output", str(result),
               DMABUF_DIO_CARRIED="")
    expect("it runs", done.returncode == 0, done.stderr)
    data = json.loads(result.read_text())
    wanted = [name for name, way in ways.WAYS.items() if not way.needs_device]
    expect("each way has a row", [row["way"] for row in data["rows"]] == wanted, data)
    for row in data["rows"]:
        expect(f"{row['way']}: two of each figure", all(len(row.get(name, [])) == 2 for name in FIGURES), row)
        if row["role"] == "ours" and "seconds" in row:
            expect(f"{row['way']}: no page cache, and the memory of the tensors", max(row["cached_bytes"]) < SIZE / 8
                   and 0.9 * SIZE < max(row["process_bytes"]) < 1.5 * SIZE, row)
    expect("the machine is named", {"gpu", "torch", "kernel", "file_system", "commit"} <= data.keys() and data["commit"] != "unknown", data)
    expect("the table has each way", all(f"\n  {name} " in done.stdout for name in wanted), done.stdout)


def compared(folder: str) -> None:
    """Every way that loads tensors finds a bit that was flipped after the file was written."""
    path, small = (os.path.join(folder, f"{name}.safetensors") for name in ("wrong", "small"))
    content.write(small, 1 << 20, 8, seed=0)
    content.write(path, SIZE, 8, seed=7)
    with open(path, "r+b") as file:
        file.seek(-SIZE // 2, os.SEEK_END)
        byte = file.read(1)[0]
        file.seek(-SIZE // 2, os.SEEK_END)
        file.write(bytes([byte ^ 1]))
    for name, way in ways.WAYS.items():
        if way.needs_device or way.role not in ("ours", "theirs"):
            continue
        done = subprocess.run([sys.executable, REPO / "bench/device/one.py", name, "cpu", small, path, "7"], input="\n", capture_output=True,
                              text=True, env=os.environ | {"PYTHONPATH": str(REPO / "build/device-site")})
        said = done.stdout.splitlines()
        expect(f"{name}: a flipped bit is found", len(said) == 3 and json.loads(said[2])["difference"] == "tensor layers.00004.weight differs", done)


def refused() -> None:
    import torch
    if not torch.cuda.is_available():
        done = run()
        expect("a machine without a device is told what to do", done.returncode != 0 and "sees no CUDA or HIP device\nhint: " in done.stderr, done)
    done = run(PYTHON="/usr/bin/false")
    expect("a wheel that cannot be installed is told", done.returncode == 1 and "hint: it needs CPython" in done.stderr, done)


def main() -> int:
    # On a disk: /tmp may be in memory.
    with tempfile.TemporaryDirectory(dir=".", prefix=".dmabuf-dio-bench-") as folder:
        measured(folder)
        compared(folder)
    refused()
    print(f"{failed} failed" if failed else "all passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
