# SPDX-License-Identifier: MIT OR Apache-2.0
"""Loads a safetensors file with a widely used loader and reports the cost."""

import argparse
import json
import os
import sys
from importlib import metadata

import listing
from content import Layout, differing_byte
from loaders import LOADERS, NAMES
from measure import Stopwatch

EPILOG = """\
Two lines of JSON are printed. The first, {"ready": true}, when everything is imported; then a line
on standard input is waited for. The second when the file is in memory:

  seconds            from the path to all bytes in memory
  user_seconds       CPU time of all threads in that time
  sys_seconds
  release_seconds    for freeing the memory
  bytes              of all tensors
  verified           with --verify: whether every byte of every tensor is right
  version            of the loader
  note               what else belongs to the timed part, or the setting

Without success: exit status 1 and the reason in the last line of standard error.

examples:
  bench/peers/load --list
  echo | bench/peers/load runai model.safetensors
  echo | bench/peers/load safetensors-torch content.safetensors --verify 7
"""


class Output:
    """Reserves standard output for the two lines: output of libraries goes to standard error."""

    def __init__(self) -> None:
        self.own = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def line(self, value: dict[str, object]) -> None:
        print(json.dumps(value), file=self.own, flush=True)


def run(name: str, path: str, seed: int | None, output: Output) -> None:
    loader = LOADERS[name]
    fill = loader.prepare()
    output.line({"ready": True})
    if not sys.stdin.readline():
        raise EOFError("standard input ended before the line that starts the load")

    watch = Stopwatch()
    tensors = fill(path)
    taken = watch.lap()

    layout = Layout.of_file(path)
    verified = None
    if seed is not None:
        difference = differing_byte(tensors, layout, seed)
        verified = difference is None
        if difference:
            print(f"{name}: {difference}", file=sys.stderr)

    watch = Stopwatch()
    del tensors
    released = watch.lap()

    output.line({
        "seconds": taken.wall, "user_seconds": taken.user, "sys_seconds": taken.system,
        "release_seconds": released.wall, "bytes": layout.tensor_bytes, "verified": verified,
        "version": metadata.version(loader.package), "note": loader.note,
    })


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="bench/peers/load", description=__doc__, epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("loader", nargs="?", choices=NAMES, metavar="LOADER", help=", ".join(NAMES))
    parser.add_argument("file", nargs="?", metavar="FILE", help="a safetensors file")
    parser.add_argument("--verify", type=int, metavar="SEED",
                        help="compare every byte with what content.py makes of SEED")
    parser.add_argument("--list", action="store_true", help="try each loader and say which can be used here")
    args = parser.parse_args()
    if args.list:
        listing.show()
        return 0
    if args.file is None:
        parser.error("LOADER and FILE are needed, or --list")

    output = Output()
    try:
        run(args.loader, args.file, args.verify, output)
    except Exception as error:
        # The reason must be the last line, so exit handlers are skipped.
        reason = " ".join(str(error).split()) or type(error).__name__
        print(f"{args.loader}: {reason}", file=sys.stderr, flush=True)
        os._exit(1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
