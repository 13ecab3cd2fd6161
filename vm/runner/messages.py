# SPDX-License-Identifier: MIT OR Apache-2.0
"""Messages of the runner, always on stderr: stdout belongs to the command in the guest."""

import sys
import time


class Failure(Exception):
    """An error for the user, printed without a traceback."""


def say(text):
    print(f"vm: {text}", file=sys.stderr, flush=True)


class Progress:
    """Prints a line every few seconds during a long operation."""

    def __init__(self, what, interval=10.0):
        self.what = what
        self.interval = interval
        self.started = time.monotonic()
        self.due = self.started + interval

    def update(self, detail):
        now = time.monotonic()
        if now >= self.due:
            self.due = now + self.interval
            say(f"{self.what}: {detail} ({now - self.started:.0f} s)")

    def done(self, detail="done"):
        say(f"{self.what}: {detail} ({time.monotonic() - self.started:.0f} s)")
