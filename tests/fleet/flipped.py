# SPDX-License-Identifier: MIT OR Apache-2.0
"""flipped.py PATH OFFSET ADDRESS PORT: a source, in whose memory one bit flips after it took the sums."""

import sys

import serve

import dmabuf_dio

path, offset, address, port = sys.argv[1:]
take_sums = serve.sums_of


def sums_of(content: memoryview, chunk: int) -> list[str]:
    sums = take_sums(content, chunk)
    content[int(offset)] ^= 1
    return sums


serve.sums_of = sums_of
serve.serve(dmabuf_dio.load(path, kind="memfd", writable=True), address, int(port))
