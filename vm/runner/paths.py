# SPDX-License-Identifier: MIT OR Apache-2.0
"""Where things are: the repository, the cache, locks between concurrent runners."""

import contextlib
import fcntl
import os
from pathlib import Path

from .messages import say

VM = Path(__file__).resolve().parent.parent
REPO = VM.parent


def cache(*parts):
    root = os.environ.get("DMABUF_DIO_CACHE") or Path.home() / ".cache" / "dmabuf-dio"
    path = Path(root).resolve().joinpath(*parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


@contextlib.contextmanager
def lock(name):
    """Held while a cache entry is created; a second runner waits and then finds it ready."""
    path = cache("locks", f"{name}.lock")
    with open(path, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another runner to finish with {name}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
