# SPDX-License-Identifier: MIT OR Apache-2.0
"""Forward the guest's output to ours as it arrives, and detect how the guest ends."""

import os
import queue
import select
import socket
import sys
import termios
import threading
import time
import tty

from . import kernel_log

# After an Oops the command may wait forever for the thread that died, and so may the
# guest's cleanup, which takes a while in a debug guest.
GRACE = 30
CLEANUP_GRACE = 180


class Writer(threading.Thread):
    """Writes to one of our streams in a thread. A slow reader must not block the guest, whose
    kernel would wait for the port with interrupts off."""

    def __init__(self, descriptor):
        super().__init__(daemon=True)
        self.descriptor = descriptor
        self.pieces = queue.SimpleQueue()
        self.broken = False
        self.start()

    def run(self):
        while (piece := self.pieces.get()) is not None:
            while piece and not self.broken:
                try:
                    piece = piece[os.write(self.descriptor, piece):]
                except OSError:
                    self.broken = True

    def finish(self):
        self.pieces.put(None)
        self.join()


class Terminal:
    """Our terminal in raw mode: keys go to the guest uninterpreted."""

    def __init__(self, descriptor):
        self.descriptor = descriptor
        self.saved = termios.tcgetattr(descriptor)

    def __enter__(self):
        # Keep typed-ahead input, which is meant for the command.
        tty.setraw(self.descriptor, termios.TCSADRAIN)

    def __exit__(self, *_):
        termios.tcsetattr(self.descriptor, termios.TCSADRAIN, self.saved)


class LogFollower:
    """Follows the kernel log."""

    def __init__(self, path, verbose):
        self.path = path
        self.verbose = verbose
        self.file = None
        self.rest = ""
        self.deadly = None
        self.command_ended = False

    def look(self):
        if self.file is None:
            if not self.path.exists():
                return
            self.file = open(self.path, encoding="utf-8", errors="replace", newline="\n")
        *lines, self.rest = (self.rest + self.file.read()).split("\n")
        for line in lines:
            line = line.rstrip("\r")
            if self.verbose:
                print(line, file=sys.stderr, flush=True)
            if self.deadly is None and kernel_log.DEADLY.search(line):
                self.deadly = time.monotonic()
            if "guest: command ends" in line:
                self.command_ended = True

    def stuck(self, now):
        grace = CLEANUP_GRACE if self.command_ended else GRACE
        return self.deadly is not None and now > self.deadly + grace


class Outcome:
    def __init__(self):
        self.status = None
        self.error = None
        self.timed_out = None    # or what it used too much of
        self.stuck = False
        self.broken_pipe = False


def follow(process, channels, log, limit, stdin=None):
    """Forward output and collect the guest's reports until QEMU exits, or `limit` is exceeded."""
    outcome = Outcome()
    writers = {"out": Writer(1), "err": Writer(2), "terminal": Writer(1)}
    report = b""
    names = {channel: name for name, channel in channels.items()}
    while names or process.poll() is None:
        watched = [*names] if stdin is None else [*names, stdin]
        ready, _, _ = select.select(watched, [], [], 0.1)
        for source in ready:
            if source == stdin:
                keys = os.read(stdin, 1024)
                if keys:
                    channels["terminal"].sendall(keys)
                else:
                    stdin = None
                continue
            try:
                piece = source.recv(1 << 16)
            except OSError:
                piece = b""
            name = names[source]
            if not piece:
                del names[source]
            elif name == "status":
                report += piece
            else:
                writers[name].pieces.put(piece)
        log.look()
        now = time.monotonic()
        outcome.broken_pipe = any(writer.broken for writer in writers.values())
        outcome.timed_out = limit.exceeded()
        outcome.stuck = log.stuck(now)
        if outcome.timed_out or outcome.stuck or outcome.broken_pipe:
            break
    if process.poll() is None:
        process.kill()
    process.wait()
    log.look()
    for writer in writers.values():
        writer.finish()
    for line in report.decode(errors="replace").splitlines():
        word, _, value = line.partition(" ")
        if word == "status":
            outcome.status = int(value)
        elif word == "error":
            outcome.error = value
    return outcome


def pair():
    """Our end and QEMU's end of one port."""
    ours, theirs = socket.socketpair()
    theirs.set_inheritable(True)
    return ours, theirs
