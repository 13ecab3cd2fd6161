# SPDX-License-Identifier: MIT OR Apache-2.0
"""Lists the loaders that work here: each loads a small file, and every byte is compared."""

import json
import os
import subprocess
import sys
import tempfile

import content
from loaders import NAMES

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "load.py")
SEED = 1


def attempt(name: str, path: str, seed: int) -> tuple[dict[str, object] | None, str]:
    """The report of a loader, run in its own process, or None; and the last line of its error output."""
    done = subprocess.run([sys.executable, PROGRAM, name, path, "--verify", str(seed)],
                          input="\n", capture_output=True, text=True)
    errors = done.stderr.strip().splitlines() or [f"ended with status {done.returncode} and no reason"]
    if done.returncode != 0:
        return None, errors[-1]
    ready, result = map(json.loads, done.stdout.splitlines())
    if ready != {"ready": True}:
        return None, f"{name}: printed {ready} first"
    return result, errors[-1]


def show() -> None:
    """Prints a line for each: usable NAME VERSION, or unusable NAME REASON."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "small.safetensors")
        content.write(path, 1 << 20, 16, SEED)
        for name in NAMES:
            result, reason = attempt(name, path, SEED)
            if result is not None and result["verified"]:
                print("usable", name, result["version"])
            else:
                print("unusable", reason.replace(": ", " ", 1) if result is None else f"{name} {reason}")
