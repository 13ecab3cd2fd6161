# SPDX-License-Identifier: MIT OR Apache-2.0
"""What a source says of its buffer, to whoever connects: one line of JSON. The connection then stays: its end tells that the
source is gone, before NIXL notices."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import hashlib
import json
import secrets
import socket

# A line for 2 TiB in chunks of 16 MiB has 9 MB.
MOST = 64 << 20


@dataclasses.dataclass(frozen=True)
class Offer:
    """A buffer at a source. Offsets and lengths are in bytes."""

    metadata: bytes
    "Of NIXL's agent: how to reach it, and the keys of its memory"
    address: int
    "Of the first byte, in the source's process"
    length: int
    chunk: int
    "Length of a chunk; the last one may be shorter"
    sums: list[str]
    "SHA-256 of each chunk"

    def to_line(self) -> bytes:
        fields = dataclasses.asdict(self) | {"metadata": base64.b64encode(self.metadata).decode()}
        return json.dumps(fields).encode() + b"\n"

    @staticmethod
    def from_line(line: bytes) -> Offer:
        """Raises ValueError for what no source says."""
        if not line.endswith(b"\n"):
            raise ValueError("the source's offer is incomplete")
        try:
            fields = json.loads(line)
            offer = Offer(
                base64.b64decode(fields["metadata"]), int(fields["address"]), int(fields["length"]), int(fields["chunk"]), list(fields["sums"])
            )
        except (KeyError, TypeError, UnicodeDecodeError, binascii.Error, json.JSONDecodeError) as error:
            raise ValueError(f"this is no offer of a buffer: {error!r}") from None
        if offer.length <= 0 or offer.chunk <= 0 or len(offer.sums) != -(-offer.length // offer.chunk):
            raise ValueError("the source's offer contradicts itself: its length, its chunks, its sums")
        return offer

    def range(self, number: int) -> tuple[int, int]:
        """Offset and length of a chunk."""
        start = number * self.chunk
        return start, min(self.chunk, self.length - start)


def sums_of(content: memoryview, chunk: int) -> list[str]:
    return [hashlib.sha256(content[start : start + chunk]).hexdigest() for start in range(0, len(content), chunk)]


def agent_name() -> str:
    """NIXL tells agents apart by their names."""
    return f"{socket.gethostname()}-{secrets.token_hex(8)}"
