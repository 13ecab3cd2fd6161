# SPDX-License-Identifier: MIT OR Apache-2.0
"""Loads a safetensors file with a widely used loader and reports the cost, as docs/notes/measuring.md describes for peers."""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time

import content
from loaders import LOADERS

SEED = 1


def now() -> tuple[float, float]:
    """Wall time, and CPU time of this process with all its threads and the children it waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return time.perf_counter(), sum(each.ru_utime + each.ru_stime for each in used)


def run(name: str, path: str, seed: int | None, hold: bool) -> None:
    # Standard output is reserved for two lines: output of libraries goes to standard error.
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    load = LOADERS[name]()
    print(json.dumps({"ready": True}), file=output, flush=True)
    if not sys.stdin.readline():
        raise EOFError("standard input ended before the line that starts the load")
    begin = now()
    tensors = load(path)
    seconds, cpu = (end - start for start, end in zip(begin, now()))
    layout = content.Layout.of_file(path)
    difference = content.differing_byte(tensors, layout, seed) if seed is not None else None
    print(json.dumps({"seconds": seconds, "cpu_seconds": cpu, "bytes": layout.tensor_bytes,
                      "verified": None if seed is None else difference is None, "difference": difference}), file=output, flush=True)
    if hold:
        sys.stdin.readline()


def attempt(name: str, path: str, seed: int) -> tuple[dict[str, object] | None, str]:
    """The report of a loader, run in its own process, or None; and the last line of its error output."""
    done = subprocess.run([sys.executable, __file__, name, path, "--verify", str(seed)], input="\n", capture_output=True, text=True)
    errors = done.stderr.strip().splitlines() or [f"ended with status {done.returncode} and no reason"]
    if done.returncode != 0:
        return None, errors[-1]
    ready, result = map(json.loads, done.stdout.splitlines())
    return (result, errors[-1]) if ready == {"ready": True} else (None, f"{name}: printed {ready} first")


def show() -> None:
    """Prints a line for each: usable NAME, or unusable NAME REASON."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "small.safetensors")
        content.write(path, 1 << 20, 16, SEED)
        for name in LOADERS:
            result, reason = attempt(name, path, SEED)
            if result is None:
                print("unusable", reason.replace(": ", " ", 1))
            else:
                print(*(["usable", name] if result["verified"] else ["unusable", name, result["difference"]]))


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench/peers/load", description=__doc__)
    parser.add_argument("loader", nargs="?", choices=LOADERS, metavar="LOADER", help=", ".join(LOADERS))
    parser.add_argument("file", nargs="?", metavar="FILE", help="a safetensors file")
    parser.add_argument("--verify", type=int, metavar="SEED", help="compare every byte with what content.py makes of SEED")
    parser.add_argument("--hold", action="store_true", help="keep the tensors until another line is read")
    parser.add_argument("--list", action="store_true", help="try each loader and say which can be used here")
    args = parser.parse_args()
    if args.list:
        show()
        return 0
    if args.file is None:
        parser.error("LOADER and FILE are needed, or --list")
    try:
        run(args.loader, args.file, args.verify, args.hold)
    except Exception as error:
        # The reason must be the last line, so exit handlers are skipped.
        reason = " ".join(str(error).split()) or type(error).__name__
        print(f"{args.loader}: {reason}", file=sys.stderr, flush=True)
        os._exit(1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
