# SPDX-License-Identifier: MIT OR Apache-2.0
"""one.py WAY DEVICE WARM FILE [SEED]: loads a file one way, by the protocol of bench/peers/watch.py, after a first load of another file,
WARM: the driver's context exists then, and its code is in memory. With SEED, the content is compared once the input has ended."""

import json
import os
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "peers"))
from content import Layout  # noqa: E402
from load import now  # noqa: E402
from ways import WAYS  # noqa: E402


def run(name: str, device: str, warm: str, path: str, seed: int | None) -> None:
    # Standard output is reserved for lines of JSON: output of libraries goes to standard error.
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    import torch

    def settle() -> None:
        if device != "cpu":
            torch.cuda.synchronize(device)

    load = WAYS[name].make(device)
    load(warm)
    settle()
    print(json.dumps({"ready": True}), file=output, flush=True)
    if not sys.stdin.readline():
        return
    begin = now()
    tensors = load(path)
    settle()
    seconds, cpu = (end - start for start, end in zip(begin, now()))
    print(json.dumps({"seconds": seconds, "cpu_seconds": cpu}), file=output, flush=True)
    sys.stdin.readline()
    if seed is not None and WAYS[name].role in ("ours", "theirs"):
        import verify
        # "cuda" is a device with a number.
        difference = verify.differing(tensors, Layout.of_file(path), seed, torch.empty(0, device=device).device)
        print(json.dumps({"difference": difference}), file=output, flush=True)


if __name__ == "__main__":
    try:
        way, device, warm, path, *seed = sys.argv[1:]
        run(way, device, warm, path, int(seed[0]) if seed else None)
    except Exception as error:
        print(" ".join(str(error).split()) or type(error).__name__, file=sys.stderr, flush=True)
        os._exit(1)
    # Libraries may take seconds to end.
    sys.stderr.flush()
    os._exit(0)
