#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Fetches the buffer that serve.py of another host offers into a new memfd, and gives it to a program:

    fetch.py 10.0.0.1:7000 -- llama-cli -m {}
    fetch.py 10.0.0.1:7000 --serve 10.0.0.2:7000     # to further hosts

Each chunk is read by NIXL from the source's memory into its place, and compared with its SHA-256. A buffer is handed out only
if all of them are right.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import mmap
import os
import socket
import subprocess
import sys

from chunks import Chunks, Progress, SourceGone
from offer import MOST, Offer
from serve import address, serve

import dmabuf_dio


def fetch(host: str, port: int, *, timeout: float = 30, progress: Progress | None = None) -> dmabuf_dio.Buffer:
    """Returns a sealed memfd with the source's bytes, all of which were checked.

    Raises SourceGone if the source cannot be reached, ends, or if no chunk arrives for `timeout` seconds, ValueError for a wrong
    offer or a chunk with another sum, OSError if there is no memory. `progress` is called with the bytes that
    were checked, and all.
    """
    source = f"{host}:{port}"
    try:
        connected = socket.create_connection((host, port), timeout)
    except OSError as error:
        raise SourceGone(f"{source}: the source cannot be reached: {error}") from error
    with connected as control:
        offer = _offer(source, control)
        memory = os.memfd_create(f"fetched from {source}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.posix_fallocate(memory, 0, offer.length)
            mapping = mmap.mmap(memory, offer.length)
            chunks = Chunks(source, control, offer, mapping)
            try:
                chunks.fetch(timeout, progress)
            finally:
                chunks.close()
            mapping.close()
            fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
            return dmabuf_dio.Buffer.from_fd(memory)
        finally:
            os.close(memory)


def _offer(source: str, control: socket.socket) -> Offer:
    try:
        return Offer.from_line(control.makefile("rb").readline(MOST))
    except OSError as error:
        raise SourceGone(f"{source}: the source sends no offer: {error}") from error
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from None


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Fetch a buffer from another host's memory, by NIXL.",
        epilog="After --, a program to run, in whose words {} stands for the path of the buffer.",
    )
    parser.add_argument("source", type=address, metavar="ADDRESS:PORT")
    parser.add_argument("--timeout", type=float, default=30, metavar="SECONDS", help="without a chunk; default 30")
    parser.add_argument("--sha256", metavar="SUM", help="of the whole; the source's own sums show faults, not lies")
    parser.add_argument("--serve", type=address, metavar="ADDRESS:PORT", help="serve it to further hosts")
    words = sys.argv[1:]
    split = words.index("--") if "--" in words else len(words)
    options, program = parser.parse_args(words[:split]), words[split + 1 :]
    try:
        buffer = fetch(*options.source, timeout=options.timeout)
        if options.sha256 and hashlib.sha256(buffer).hexdigest() != options.sha256.lower():
            raise ValueError("the whole has another SHA-256 than --sha256 says")
    except (OSError, ValueError) as error:
        print(f"fetch.py: {error}", file=sys.stderr)
        return 1
    if options.serve:
        serve(buffer, *options.serve)
    path = f"/proc/{os.getpid()}/fd/{buffer.fd}"
    return subprocess.run([word.replace("{}", path) for word in program]).returncode if program else 0


if __name__ == "__main__":
    sys.exit(main())
