# SPDX-License-Identifier: MIT OR Apache-2.0
"""Reads captures of the counting ADC in other formats through the SigMF library, which scales them, and
checks every sample. read_formats.py FRAMES BITS RECORDING... ; the recordings, descriptions or
archives, follow on one another. BITS: the significant bits of an integer, 0 for floating point."""

import sys

import numpy
import sigmf


def wanted(first, count, bits):
    """The device's values from -1 to 1: of 16 bits, unsigned, in four channels."""
    numbers = numpy.arange(first, first + count, dtype="<u8")
    values = numbers.view("<u2").reshape(-1, 4).astype("f8") - 32768
    if 0 < bits < 16:
        values = numpy.minimum(numpy.rint(values / 2 ** (16 - bits)), 2 ** (bits - 1) - 1)
        return values / 2 ** (bits - 1)
    return values / 32768


def values_of(recording):
    samples = recording.read_samples()
    if numpy.iscomplexobj(samples):
        samples = numpy.ascontiguousarray(samples).view("f4")
    return samples.reshape(-1, 4)


def main():
    frames, bits, at = int(sys.argv[1]), int(sys.argv[2]), 0
    for path in sys.argv[3:]:
        recording = sigmf.fromfile(path)
        recording.validate()
        values = values_of(recording)
        assert recording.get_captures()[0]["core:global_index"] == at, path
        wrong = numpy.flatnonzero(values != wanted(at, len(values), bits))
        assert not wrong.size, (path, wrong[0], values.ravel()[wrong[0]])
        at += len(values)
        print(path, recording.get_global_info()["core:datatype"], len(values))
    assert at == frames, at


main()
