# SPDX-License-Identifier: MIT OR Apache-2.0
"""Peak memory of programs that load models: with safetensors, and with dmabuf_dio.install().

Memory is what the load adds to the process (anonymous, shared and huge pages) and the pages of the model's files in the page cache, where those
that are mapped are, too; looked at every millisecond, when both together are the most. Every page of what is kept is read. Caches are cold before each
load. Exits with 1 if a program takes more with dmabuf-dio than its bound (bench/figures/peaks.py)."""

import argparse
import contextlib
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import programs
import watch
from programs import PROGRAMS

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))
from figures import peaks, results  # noqa: E402

WHOSE = {"safetensors": "safetensors", "ours": "dmabuf-dio"}


@contextlib.contextmanager
def model(kind: str, within: str) -> Iterator[str]:
    """A folder with a model, until its end."""
    with tempfile.TemporaryDirectory(dir=within, prefix=".dmabuf-dio-bench-") as folder:
        made = subprocess.run([sys.executable, programs.__file__, "--make", kind, folder], capture_output=True, text=True)
        if made.returncode:
            raise watch.Failed(made.stderr.strip().splitlines()[-1])
        yield folder


def once(name: str, whose: str, folder: str) -> tuple[dict[str, int], int, int]:
    """Loads once: what the program says, its memory, and the pages of files."""
    shutil.rmtree(f"{folder}/offload", ignore_errors=True)
    command = [sys.executable, programs.__file__, name, WHOSE[whose], folder]
    said, process, cached = watch.watch(command, programs.files(folder))
    return json.loads(said), process, cached


def measure(name: str, runs: int, folder: str) -> dict[str, object]:
    """A row: both in turns."""
    row = {"name": name, "one_by_one": PROGRAMS[name].one_by_one, "file_bytes": sum(map(os.path.getsize, programs.files(folder))),
           "kept_bytes": 0, "window_bytes": 0}
    for _ in range(runs):
        for whose in WHOSE:
            try:
                said, process, cached = once(name, whose, folder)
            except watch.Failed as error:
                # Without a package that the program needs it fails with safetensors, too.
                return {"name": name, "unavailable" if whose == "safetensors" else "failed": str(error)}
            row.setdefault(f"{whose}_process", []).append(process)
            row.setdefault(f"{whose}_cached", []).append(cached)
        row["kept_bytes"] = said["kept_bytes"]
        row["window_bytes"] = max(row["window_bytes"], said["window_bytes"])
    return row


def measured(names: list[str], runs: int, within: str) -> Iterator[dict[str, object]]:
    """The rows. Each model is written once."""
    for kind in dict.fromkeys(PROGRAMS[name].model for name in names):
        wanted = [name for name in names if PROGRAMS[name].model == kind]
        try:
            with model(kind, within) as folder:
                for name in wanted:
                    yield measure(name, runs, folder)
        except watch.Failed as error:
            yield from ({"name": name, "unavailable": str(error)} for name in wanted)


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench/peers/consumers", description=__doc__)
    parser.add_argument("--dir", default=".", help="where the models are written, 1 GB [default: the current folder]")
    parser.add_argument("--runs", type=int, default=1, help="the median counts [default: 1]")
    parser.add_argument("--only", default="", metavar="TEXT", help="programs whose name contains this")
    parser.add_argument("--output", metavar="FILE", help="write JSON to a file, too")
    args = parser.parse_args()
    rows = []
    for row in measured([name for name in PROGRAMS if args.only in name], args.runs, args.dir):
        rows.append(row)
        print(row["name"], "" if "ours_process" in row else row.get("failed", row.get("unavailable")), flush=True)
    data = {"bench": "peers-consumers", "rows": sorted(rows, key=lambda row: list(PROGRAMS).index(row["name"]))}
    found = results.Result(data)
    print(f"\n{peaks.table(found)}")
    if args.output:
        results.keep(args.output, shlex.join(["bench/peers/consumers", *sys.argv[1:]]), dict(data))
    worse = peaks.over(found.rows)
    for text in worse:
        print(f"over its bound: {text}", file=sys.stderr)
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
