# SPDX-License-Identifier: MIT OR Apache-2.0
"""Peak memory of each loader, and the time to import this project's package.

Memory is what the load adds to the process (anonymous, shared and huge pages) and the pages of the file in the page cache, looked at every
millisecond, when both together are the most. Mapped pages of the file are counted in the page cache alone. The table has both relative to the file's
length: 1.00 is the file once, 2.00 are doubled weights. Caches are cold before each load."""

import argparse
import itertools
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile

import content
import load
import watch
from loaders import LOADERS

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))
from figures import results  # noqa: E402

# Bytes of a tensor
LAYOUTS = {"many": 256 << 10, "few": 16 << 20}
SEED = 1
IMPORTS = 9
# No program of ours has imported anything before.
IMPORT = "import time; begin = time.perf_counter(); import dmabuf_dio; print(time.perf_counter() - begin)"


def measure(name: str, path: str) -> dict[str, object]:
    """Loads a file once: the bytes that the process grew by, and those in the page cache."""
    try:
        _, peak, left = watch.watch([sys.executable, load.__file__, name, path, "--hold"], [path])
    except watch.Failed as error:
        return {"name": name, "unavailable": str(error)}
    return {"name": name, "file_bytes": os.path.getsize(path), "peak_bytes": peak, "cached_bytes": left}


def import_seconds() -> float:
    """The median of some imports in fresh interpreters."""
    command = [sys.executable, "-c", IMPORT]
    return statistics.median(float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
                             for _ in range(IMPORTS))


def size(text: str) -> int:
    return int(text[:-1]) << {"M": 20, "G": 30}[text[-1]]


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench/peers/memory", description=__doc__)
    parser.add_argument("--sizes", default="128M,1G", metavar="SIZE,...", help="of the files, in M or G [default: 128M,1G]")
    parser.add_argument("--dir", default=".", help="where the files are written [default: the current folder]")
    parser.add_argument("--only", action="append", choices=LOADERS, metavar="LOADER", help="measure this one; repeatable")
    parser.add_argument("--output", metavar="FILE", help="write JSON to a file, too")
    args = parser.parse_args()
    seconds = import_seconds()
    print(f"import dmabuf_dio: {seconds * 1e3:.1f} ms (median of {IMPORTS})")
    rows = []
    with tempfile.TemporaryDirectory(dir=args.dir, prefix=".dmabuf-dio-bench-") as folder:
        for text, (layout, length) in itertools.product(args.sizes.split(","), LAYOUTS.items()):
            path = os.path.join(folder, "content.safetensors")
            content.write(path, size(text), size(text) // length, SEED)
            print(f"\n{text}, {layout} tensors: bytes per byte of the file\n{'':20} process   cache     sum")
            for name in args.only or LOADERS:
                row = measure(name, path)
                rows.append({"size": text, "tensors": layout, **row})
                parts = [row[part] / row["file_bytes"] for part in ("peak_bytes", "cached_bytes") if part in row]
                print(f"{name:20}", row.get("unavailable") or "{:7.3f} {:7.3f} {:7.3f}".format(*parts, sum(parts)), flush=True)
    if args.output:
        results.keep(args.output, shlex.join(["bench/peers/memory", *sys.argv[1:]]),
                     {"bench": "peers-memory", "import_seconds": round(seconds, 6), "rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
