# SPDX-License-Identifier: MIT OR Apache-2.0
"""ways.py WAY ENDPOINT BUCKET KEY LENGTH: loads an object of S3 into memory one way, by the protocol of bench/peers/watch.py: prints a
line, waits for one, loads, prints a line. At the end of its input it prints the SHA-256 of what it loaded."""

from __future__ import annotations

import hashlib
import mmap
import os
import sys
import time
from collections.abc import Callable, Iterable

MIB = 1 << 20
Load = Callable[[], Iterable[object]]


# Each says its settings: those of its documents of which no others were faster here.
def dmabuf_dio(endpoint: str, bucket: str, key: str, length: int) -> Load:
    import dmabuf_dio

    return lambda: [dmabuf_dio.load(f"s3://{bucket}/{key}", kind="memfd")]


def boto3(endpoint: str, bucket: str, key: str, length: int) -> Load:
    """Ranges of 8 MiB in ten threads, as by default."""
    import boto3
    from boto3.s3.transfer import TransferConfig

    client = boto3.client("s3", endpoint_url=endpoint)

    class Memory:
        """A file in memory that has its length from the start: io.BytesIO would be copied as it grows."""

        def __init__(self) -> None:
            self.memory = mmap.mmap(-1, length)
            self.seek, self.tell, self.write = self.memory.seek, self.memory.tell, self.memory.write

        def seekable(self) -> bool:
            return True

    def load() -> list[object]:
        memory = Memory()
        client.download_fileobj(bucket, key, memory, Config=TransferConfig(multipart_chunksize=8 * MIB, max_concurrency=10))
        return [memory.memory]

    return load


def runai(endpoint: str, bucket: str, key: str, length: int) -> Load:
    # By default: 16 readers; all of the object in its memory. torch, of another environment, only wraps that.
    sys.path.append(os.environ["BENCH_TORCH"])
    os.environ["RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING"] = "0"
    from runai_model_streamer import FileChunks, FileStreamer

    sizes = [min(64 * MIB, length - start) for start in range(0, length, 64 * MIB)]

    def load() -> list[object]:
        with FileStreamer() as streamer:
            streamer.stream_files([FileChunks.contiguous(0, f"s3://{bucket}/{key}", 0, sizes)])
            found = {number: tensor for _, number, tensor in streamer.get_chunks()}
        return [found[number].numpy() for number in range(len(sizes))]

    return load


def nixl(crt: bool) -> Callable[[str, str, str, int], Load]:
    def way(endpoint: str, bucket: str, key: str, length: int) -> Load:
        import numpy
        from nixl_cu12._api import nixl_agent, nixl_agent_config

        agent = nixl_agent("bench", nixl_agent_config(backends=[]))
        settings = {"bucket": bucket, "endpoint_override": endpoint, "scheme": "http", "num_threads": "16"}
        agent.create_backend("OBJ", settings | ({"crtMinLimit": str(8 * MIB)} if crt else {}))

        def load() -> list[object]:
            memory = numpy.empty(length, numpy.uint8)
            ranges = [(start, min(8 * MIB, length - start)) for start in range(0, length, 8 * MIB)]
            agent.register_memory([(memory.ctypes.data, length, 0, "")], "DRAM", backends=["OBJ"])
            agent.register_memory([(0, length, 0, key)], "OBJ", backends=["OBJ"])
            here = agent.get_xfer_descs([(memory.ctypes.data + start, size, 0) for start, size in ranges], "DRAM")
            there = agent.get_xfer_descs([(start, size, 0) for start, size in ranges], "OBJ")
            handle = agent.initialize_xfer("READ", here, there, "bench", backends=["OBJ"])
            state = agent.transfer(handle)
            while state == "PROC":
                time.sleep(0.001)
                state = agent.check_xfer_state(handle)
            assert state == "DONE", state
            return [memory]

        return load

    return way


WAYS: dict[str, Callable[[str, str, str, int], Load]] = {
    "dmabuf_dio": dmabuf_dio,
    "boto3": boto3,
    "runai": runai,
    "nixl": nixl(False),
    "nixl-crt": nixl(True),
}


def main() -> None:
    name, endpoint, bucket, key, length = sys.argv[1:]
    # Standard output is reserved for lines of the protocol.
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    load = WAYS[name](endpoint, bucket, key, int(length))
    print("ready", file=output, flush=True)
    sys.stdin.readline()
    loaded = load()
    print("loaded", file=output, flush=True)
    sys.stdin.readline()
    digest = hashlib.sha256()
    for part in loaded:
        digest.update(part)  # type: ignore[arg-type]
    print(digest.hexdigest(), file=output, flush=True)
    # Libraries may take seconds to end.
    os._exit(0)


if __name__ == "__main__":
    main()
