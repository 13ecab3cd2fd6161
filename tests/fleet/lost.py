# SPDX-License-Identifier: MIT OR Apache-2.0
"""lost.py ADDRESS PORT TIMEOUT COMMAND...: fetches, runs the command once the first chunk was checked, and expects that the
fetch says so and leaves nothing."""

import os
import subprocess
import sys

from chunks import SourceGone
from fetch import fetch

address, port, timeout, *command = sys.argv[1:]
seen: list[int] = []


def progress(done: int, total: int) -> None:
    if not seen:
        subprocess.run(command, check=True)
    seen.append(done)


try:
    fetch(address, int(port), timeout=float(timeout), progress=progress)
except SourceGone as error:
    said = str(error)
else:
    sys.exit("the fetch succeeded")
print(said)
assert said.startswith(f"{address}:{port}: "), said
# What had been checked, and one of the chunks that had not
assert f"; {seen[-1]} of " in said, (said, seen)
assert ": chunk " in said and 0 < seen[-1] < 134217729, (said, seen)
left = [link for link in map(os.readlink, (f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}"))) if "memfd" in link]
assert not left, left
