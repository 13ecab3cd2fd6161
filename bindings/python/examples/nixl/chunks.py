# SPDX-License-Identifier: MIT OR Apache-2.0
"""Moves the chunks of an offer by NIXL into this process's memory, and compares each with its sum."""

from __future__ import annotations

import hashlib
import mmap
import select
import socket
import time
from collections.abc import Callable
from contextlib import suppress

import numpy
from nixl import nixl_agent, nixl_agent_config
from offer import Offer, agent_name

# Chunks that are on their way at the same time
DEPTH = 4

Progress = Callable[[int, int], object]


class SourceGone(ConnectionError):
    """The source ended, or does not answer."""


class Chunks:
    """One fetch. `control` is the connection that the offer came by."""

    def __init__(self, source: str, control: socket.socket, offer: Offer, memory: mmap.mmap) -> None:
        self.source, self.control, self.offer = source, control, offer
        self.place = numpy.frombuffer(memory, numpy.uint8)
        self.agent = nixl_agent(agent_name(), nixl_agent_config(enable_prog_thread=False, backends=["UCX"]))
        self.registered = self.agent.register_memory([(self.place.ctypes.data, self.place.nbytes, 0, "")], "DRAM")
        peer = self.agent.add_remote_agent(offer.metadata)
        self.peer = peer.decode() if isinstance(peer, bytes) else peer
        # Numbers of chunks, and NIXL's handles
        self.under_way: dict[int, object] = {}
        self.bytes = 0

    def fetch(self, timeout: float, progress: Progress | None) -> None:
        """Returns when all chunks are there and right."""
        count, started, heard = len(self.offer.sums), 0, time.monotonic()
        while started < count or self.under_way:
            while started < count and len(self.under_way) < DEPTH:
                self._start(started)
                started += 1
            arrived = [number for number in self.under_way if self._has_arrived(number)]
            for number in arrived:
                self.agent.release_xfer_handle(self.under_way.pop(number))
                self._check(number)
                if progress:
                    progress(self.bytes, self.offer.length)
            if arrived:
                heard = time.monotonic()
            elif time.monotonic() - heard > timeout:
                raise self._gone(min(self.under_way), f"no chunk arrived for {timeout:g} s")
            elif select.select([self.control], [], [], 0.001)[0]:
                raise self._gone(min(self.under_way), "the source ended")

    def close(self) -> None:
        """From now on NIXL does not write into the memory."""
        for transfer in self.under_way.values():
            with suppress(Exception):
                self.agent.release_xfer_handle(transfer)
        with suppress(Exception):
            self.agent.remove_remote_agent(self.peer)
        with suppress(Exception):
            self.agent.deregister_memory(self.registered)
        del self.agent, self.place

    def _start(self, number: int) -> None:
        offset, length = self.offer.range(number)
        here = self.agent.get_xfer_descs([(self.place.ctypes.data + offset, length, 0)], "DRAM")
        there = self.agent.get_xfer_descs([(self.offer.address + offset, length, 0)], "DRAM")
        try:
            self.under_way[number] = self.agent.initialize_xfer("READ", here, there, self.peer)
            state = self.agent.transfer(self.under_way[number])
        except Exception as error:
            raise self._gone(number, self._named(error)) from error
        if state == "ERR":
            raise self._gone(number, "NIXL cannot start the transfer")

    def _has_arrived(self, number: int) -> bool:
        try:
            state = self.agent.check_xfer_state(self.under_way[number])
        except Exception as error:
            raise self._gone(number, self._named(error)) from error
        if state == "ERR":
            raise self._gone(number, "the transfer failed")
        return bool(state == "DONE")

    def _named(self, error: Exception) -> str:
        """NIXL's exceptions have no base class of their own."""
        if not type(error).__name__.startswith("nixl"):
            raise error
        return str(error)

    def _check(self, number: int) -> None:
        offset, length = self.offer.range(number)
        if hashlib.sha256(self.place[offset : offset + length]).hexdigest() != self.offer.sums[number]:
            raise ValueError(f"{self.source}: chunk {number}, bytes {offset} to {offset + length}, has another SHA-256 than the source said")
        self.bytes += length

    def _gone(self, number: int, why: str) -> SourceGone:
        offset, length = self.offer.range(number)
        return SourceGone(
            f"{self.source}: {why}: chunk {number}, bytes {offset} to {offset + length}; "
            f"{self.bytes} of {self.offer.length} bytes had been checked"
        )
