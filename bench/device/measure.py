# SPDX-License-Identifier: MIT OR Apache-2.0
"""Loads models to a device: with dmabuf-dio, with other loaders, and the disk and the bus alone.

Each load is in a process of its own, from a cold cache. Those of a round start together, load a small file, and wait for their turn; the
order is another in each round. Every byte is compared on the device in the first round. docs/notes/measuring.md has more."""

import argparse
import contextlib
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

import machine

HERE = pathlib.Path(__file__).resolve().parent
sys.path += [str(HERE.parent), str(HERE.parent / "peers")]
import content  # noqa: E402
import watch  # noqa: E402
from figures import devices, results  # noqa: E402
from memory import size  # noqa: E402
from ways import WAYS  # noqa: E402

# Bytes of a tensor: of a layer of a large model, or of one of its many experts.
LAYOUTS = {"few": 200 << 20, "many": 256 << 10}
SMALL = 1 << 20
# Seconds after which a program that starts, or that loads, has failed
LIMIT = 300
# How often memory is looked at, in seconds
EVERY = 0.005

Row = dict[str, Any]


class Host:
    """How much more memory of the host a load takes, at the peak of each."""

    def __init__(self, process: int) -> None:
        self.process = process
        self.before = self.now()
        self.peak = {name: 0 for name in self.before}

    def now(self) -> dict[str, int]:
        with open("/proc/meminfo", encoding="ascii") as lines:
            fields = {line.split(":")[0]: int(line.split()[1]) << 10 for line in lines}
        return {"process_bytes": watch.resident(self.process), "pinned_bytes": watch.status(self.process, "VmPin", "VmLck"),
                # With the page cache, and what the driver has.
                "machine_bytes": fields["MemTotal"] - fields["MemFree"]}

    def look(self) -> None:
        for name, value in self.now().items():
            self.peak[name] = max(self.peak[name], value - self.before[name])


def cool(path: str, pages: watch.Pages) -> int:
    """Drops a file from the page cache. Returns how many bytes are still there."""
    watch.drop(path)
    if pages.bytes():
        with contextlib.suppress(OSError):
            pathlib.Path("/proc/sys/vm/drop_caches").write_text("1")
    return pages.bytes()


@contextlib.contextmanager
def limited(program: watch.Program, row: Row) -> Iterator[None]:
    """Ends a program that takes too long. If it fails, its row has the reason instead of figures."""
    timer = threading.Timer(LIMIT, program.process.kill)
    timer.start()
    try:
        yield
    except watch.Failed as error:
        killed = program.process.returncode == -signal.SIGKILL
        fail(row, "failed" if "seconds" in row else "unavailable", f"it was killed: no memory, or over {LIMIT} s" if killed else str(error))
    finally:
        timer.cancel()


def fail(row: Row, outcome: str, reason: str) -> None:
    for name in [name for name, value in row.items() if isinstance(value, list)]:
        del row[name]
    row[outcome] = reason


def is_left(row: Row) -> bool:
    return not any(outcome in row for outcome in results.OUTCOMES)


def load(program: watch.Program, path: str, row: Row, verified: bool) -> None:
    """Adds the figures of a load to its row."""
    pages = watch.Pages(path)
    warm = cool(path, pages)
    host = Host(program.pid)
    figures = json.loads(program.load(host.look, EVERY)) | host.peak | {"cached_bytes": pages.bytes(), "warm_bytes": warm}
    said = program.end()
    if verified and row["role"] in ("ours", "theirs"):
        difference = json.loads(said)["difference"] if said else f"not compared: {' '.join(program.errors[-1:]).strip()}"
        if difference:
            fail(row, "different", difference)
            return
    for name, value in figures.items():
        row.setdefault(name, []).append(value)


def round_(rows: list[Row], command: list[str], path: str, seed: int | None) -> None:
    """Loads once each way that has not failed. With a seed, compares."""
    one, *others = command
    more = [] if seed is None else [str(seed)]
    with contextlib.ExitStack() as stack:
        started = [(row, stack.enter_context(watch.Program([sys.executable, one, str(row["way"]), *others, path, *more]))) for row in rows]
        for row, program in started:
            with limited(program, row):
                program.line()
        for row, program in started:
            if is_left(row):
                with limited(program, row):
                    load(program, path, row, verified=seed is not None)


def model(folder: str, bytes_: int, layout: str, seed: int) -> str:
    path = os.path.join(folder, "model.safetensors")
    content.write(path, bytes_, bytes_ // min(LAYOUTS[layout], bytes_ // 4), seed)
    return path


def room(bytes_: int, folder: str, facts: dict[str, Any]) -> str | None:
    """Why a file of this size cannot be measured."""
    if shutil.disk_usage(folder).free < bytes_ + (1 << 30):
        return f"{folder} has no room for it: name another disk with --dir"
    if bytes_ * 1.3 > facts.get("gpu_bytes", facts["memory_bytes"]):
        return "the memory of the device is too small"
    return None


def measure(args: argparse.Namespace, facts: dict[str, Any]) -> Iterator[list[Row]]:
    """The rows of each file."""
    with tempfile.TemporaryDirectory(dir=args.dir, prefix=".dmabuf-dio-bench-") as folder:
        small = os.path.join(folder, "small.safetensors")
        content.write(small, SMALL, 8, seed=0)
        files = [(text, layout) for text in args.sizes.split(",") for layout in args.layouts.split(",")]
        for seed, (text, layout) in enumerate(files, 1):
            reason = room(size(text), folder, facts)
            if reason:
                print(f"{text}, {layout} tensors: left out: {reason}", file=sys.stderr)
                continue
            path = model(folder, size(text), layout, seed)
            rows: list[Row] = [{"size": size(text), "tensors": layout, "way": name, "role": WAYS[name].role} for name in args.only or WAYS
                               if args.device != "cpu" or not WAYS[name].needs_device]
            for number in range(args.rounds):
                left = list(filter(is_left, rows))
                at = number % max(len(left), 1)
                round_(left[at:] + left[:at], [str(HERE / "one.py"), args.device, small], path, None if number else seed)
            yield rows


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench/device/run", description=__doc__)
    parser.add_argument("--device", default="cuda:0", help="as torch names it; cpu tries this program without one [default: cuda:0]")
    parser.add_argument("--sizes", default="1G,4G", metavar="SIZE,...", help="of the files, in M or G [default: 1G,4G]")
    parser.add_argument("--layouts", default="few,many", help="few or many tensors [default: few,many]")
    parser.add_argument("--rounds", type=int, default=3, help="the median counts [default: 3]")
    parser.add_argument("--dir", default="build", help="where the models are written [default: build]")
    parser.add_argument("--only", action="append", choices=WAYS, metavar="WAY", help="measure this one; repeatable: " + ", ".join(WAYS))
    parser.add_argument("--output", metavar="FILE", help="of the result [default: bench/results/device-NAME.json, of a device]")
    parser.add_argument("--check", action="store_true", help="fail where dmabuf-dio misses the goal")
    args = parser.parse_args()
    asked = subprocess.run([sys.executable, machine.__file__, args.device], stdout=subprocess.PIPE, text=True)
    if asked.returncode:
        return asked.returncode
    facts = machine.host(args.dir) | json.loads(asked.stdout) | {"commit": os.environ.get("DMABUF_DIO_COMMIT", "unknown"), "rounds": args.rounds}
    print(", ".join(str(facts[name]) for name in ("gpu", "driver", "bus", "torch", "kernel", "disk", "file_system") if name in facts), flush=True)
    output = args.output
    if not output and args.device != "cpu":
        output = HERE.parent / f"results/device-{re.sub('[^a-z0-9]+', '-', facts['gpu'].lower()).strip('-')}.json"
    kept: list[Row] = []
    for rows in measure(args, facts):
        print(f"\n{devices.table(results.Result({'bench': 'device', 'rows': rows}))}", end="", flush=True)
        kept += rows
        # After each file, so that a run that is cut off leaves what it has.
        if output:
            results.keep(output, shlex.join(["bench/device/run", *sys.argv[1:]]), {"bench": "device", **facts, "rows": kept})
    if output:
        print(f"\nThe result is in {output}")
    missed = devices.missed(results.Result({"bench": "device", "rows": kept}).rows)
    for text in missed:
        print(f"missed: {text}", file=sys.stderr)
    return 1 if args.check and (missed or not kept) else 0


if __name__ == "__main__":
    sys.exit(main())
