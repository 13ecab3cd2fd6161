#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Moves a loaded buffer to another host by Mooncake's transfer engine over TCP:

    move.py serve model.gguf 10.0.0.1               # prints the words that fetch takes: TARGET PLACE LENGTH SHA256
    move.py fetch 10.0.0.2 TARGET PLACE LENGTH SHA256 -- llama-cli -m {}

10.0.0.1 and 10.0.0.2 are the own addresses of the two hosts. Whoever reaches the ports of these processes can read their buffers.
"""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os
import signal
import subprocess
import sys

import numpy
from mooncake.engine import TransferEngine

import dmabuf_dio

CHUNK = 16 << 20


def engine_at(address: str) -> TransferEngine:
    engine = TransferEngine()
    if engine.initialize(address, "P2PHANDSHAKE", "tcp", "") != 0:
        raise OSError(f"{address}: Mooncake's transfer engine cannot listen here")
    return engine


def serve(path: str, address: str) -> None:
    """Does not return. The memory is read-only: a peer that writes cannot change what others fetch."""
    with dmabuf_dio.load(path, kind="memfd") as buffer:
        content = numpy.frombuffer(buffer, numpy.uint8)
        engine = engine_at(address)
        if engine.register_memory(content.ctypes.data, content.nbytes) != 0:
            raise OSError(f"{path}: Mooncake cannot register the buffer")
        target, sum = f"{address}:{engine.get_rpc_port()}", hashlib.sha256(content).hexdigest()
        print("serving", target, content.ctypes.data, content.nbytes, sum, flush=True)
        while True:
            signal.pause()


def fetch(address: str, target: str, place: int, length: int, sum: str) -> dmabuf_dio.Buffer:
    """Returns a sealed memfd with these bytes. Raises ConnectionError if the source is gone, or does not answer for 30 s, which is
    Mooncake's limit, ValueError if the bytes have another sum."""
    memory = os.memfd_create(f"fetched from {target}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.posix_fallocate(memory, 0, length)
        mapping = mmap.mmap(memory, length)
        content = numpy.frombuffer(mapping, numpy.uint8)
        engine = engine_at(address)
        if engine.register_memory(content.ctypes.data, length) != 0:
            raise OSError("Mooncake cannot register the new buffer")
        for start in range(0, length, CHUNK):
            end = min(start + CHUNK, length)
            if engine.transfer_sync_read(target, content.ctypes.data + start, place + start, end - start) != 0:
                raise ConnectionError(f"{target}: the source is gone: bytes {start} to {end} of {length} cannot be read")
        engine.unregister_memory(content.ctypes.data)
        if hashlib.sha256(content).hexdigest() != sum:
            raise ValueError(f"{target}: the bytes that arrived have another SHA-256")
        del content, engine
        mapping.close()
        fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
        return dmabuf_dio.Buffer.from_fd(memory)
    finally:
        os.close(memory)


def main() -> int:
    match sys.argv[1:]:
        case ["serve", path, address]:
            serve(path, address)
        case ["fetch", address, target, place, length, sum, "--", *program]:
            try:
                buffer = fetch(address, target, int(place), int(length), sum)
            except (OSError, ValueError) as error:
                print(f"move.py: {error}", file=sys.stderr)
                return 1
            path = f"/proc/{os.getpid()}/fd/{buffer.fd}"
            return subprocess.run([word.replace("{}", path) for word in program]).returncode if program else 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
