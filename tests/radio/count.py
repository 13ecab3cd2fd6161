#!/usr/bin/python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Flow graphs of GNU Radio that receive from the counting ADC (kernel/sim/iio_stream) and check every sample.
count.py soapy | file PATH

A frame of two channels is its own number: the in-phase part has its lower 16 bits, the quadrature part the upper ones,
of which 32768 is 0 and 65536 full scale."""

import sys

import numpy
from gnuradio import blocks, gr, soapy

RATE = 50_000
SAMPLES = 150_000


class Counter(gr.sync_block):
    """Fails at the first sample that is not the next one."""

    def __init__(self):
        gr.sync_block.__init__(self, "counter", [numpy.complex64], None)
        self.next = 0
        self.wrong = None

    def work(self, input_items, output_items):
        samples = input_items[0]
        parts = numpy.rint(samples.view(numpy.float32) * 32768 + 32768).astype(numpy.uint64)
        numbers = parts[0::2] | parts[1::2] << 16
        wanted = numpy.arange(self.next, self.next + len(samples), dtype=numpy.uint64)
        differ = numpy.flatnonzero(numbers != wanted)
        if differ.size and self.wrong is None:
            self.wrong = f"sample {wanted[differ[0]]} has the number {numbers[differ[0]]}"
        self.next += len(samples)
        return len(samples)


def soapy_source():
    source = soapy.source("driver=dmabuf-dio,name=stream-adc", "fc32", 1, "", "buffers=64", [""], [""])
    source.set_sample_rate(0, RATE)
    assert source.get_sample_rate(0) == RATE
    return source


def main():
    if sys.argv[1] == "soapy":
        source = soapy_source()
    else:
        source = blocks.file_source(gr.sizeof_gr_complex, sys.argv[2])
    graph = gr.top_block()
    counter = Counter()
    graph.connect(source, blocks.head(gr.sizeof_gr_complex, SAMPLES), counter)
    graph.run()
    print(f"{counter.next} samples, {counter.wrong or 'each the next one'}")
    return 0 if counter.next == SAMPLES and counter.wrong is None else 1


if __name__ == "__main__":
    sys.exit(main())
