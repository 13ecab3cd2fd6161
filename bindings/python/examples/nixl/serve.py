#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Loads a file into a memfd, registers it with NIXL, and lets other hosts fetch it:

    serve.py model.safetensors --listen 10.0.0.1:7000

Whoever reaches the ports of this process can read the buffer. Keep them within a network that you trust.
"""

from __future__ import annotations

import argparse
import socketserver
import threading
import time

import numpy
from nixl import nixl_agent, nixl_agent_config
from offer import Offer, agent_name, sums_of

import dmabuf_dio

CHUNK = 16 << 20


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, address: tuple[str, int], line: bytes) -> None:
        super().__init__(address, _Connection)
        self.line = line
        self.fetching = threading.Condition()
        self.fetchers = 0

    def count(self, change: int) -> None:
        with self.fetching:
            self.fetchers += change
            self.fetching.notify_all()


class _Connection(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        self.server.count(1)
        try:
            self.wfile.write(self.server.line)
            self.rfile.read(1)  # until the other side ends
        except OSError:
            pass  # It ended first.
        finally:
            self.server.count(-1)


def _answer(agent: nixl_agent, server: _Server) -> None:
    """Lets NIXL answer while somebody fetches. NIXL's own thread would keep a processor busy at other times, too."""
    while True:
        with server.fetching:
            server.fetching.wait_for(lambda: server.fetchers > 0)
        agent.get_new_notifs()
        time.sleep(0)


def serve(buffer: dmabuf_dio.Buffer, host: str, port: int, chunk: int = CHUNK) -> None:
    """Offers the content of the buffer at this address, which other hosts must reach. Does not return."""
    content = numpy.frombuffer(buffer, numpy.uint8)
    agent = nixl_agent(agent_name(), nixl_agent_config(enable_prog_thread=False, backends=["UCX"]))
    agent.register_memory([(content.ctypes.data, content.nbytes, 0, "")], "DRAM")
    sums = sums_of(memoryview(buffer), chunk)
    offer = Offer(agent.get_agent_metadata(), content.ctypes.data, content.nbytes, chunk, sums)
    with _Server((host, port), offer.to_line()) as server:
        threading.Thread(target=_answer, args=(agent, server), daemon=True).start()
        print(f"serving {content.nbytes} bytes at {host}:{server.server_address[1]}", flush=True)
        server.serve_forever()


def address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not ADDRESS:PORT")
    return host, int(port)


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve a file from memory to other hosts, by NIXL.")
    parser.add_argument("path")
    parser.add_argument("--listen", type=address, default=("127.0.0.1", 7000), metavar="ADDRESS:PORT")
    options = parser.parse_args()
    # Read-only: a peer that writes cannot change what others fetch.
    with dmabuf_dio.load(options.path, kind="memfd") as buffer:
        if len(buffer) == 0:
            parser.error(f"{options.path} is empty")
        serve(buffer, *options.listen)


if __name__ == "__main__":
    main()
