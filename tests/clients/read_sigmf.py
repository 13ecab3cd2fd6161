# SPDX-License-Identifier: MIT OR Apache-2.0
"""Reads a capture of the counting ADC through the SigMF library, and checks every sample and the
position of every gap. read_sigmf.py META [REPORT]"""

import json
import sys

import numpy
import sigmf


def frame_numbers(recording):
    """Each frame's number: 16 bits in each of four channels."""
    # sigmf returns 32-bit floating-point numbers, which represent 24-bit integers exactly.
    samples = recording.read_samples().astype("<u2")
    assert samples.shape[1:] == (4,), samples.shape
    return numpy.ascontiguousarray(samples).view("<u8").ravel()


def main():
    recording = sigmf.fromfile(sys.argv[1], autoscale=False)
    recording.validate()
    numbers = frame_numbers(recording)
    assert recording.get_global_info()["core:sample_rate"] > 0

    # Each segment in the description has its start and its number.
    expected = numpy.arange(len(numbers), dtype="u8")
    exact = True
    for capture in recording.get_captures():
        start, index = capture["core:sample_start"], capture.get("core:global_index")
        assert index is not None, capture
        expected[start:] = numpy.arange(index, index + len(numbers) - start, dtype="u8")
    gaps = [a for a in recording.get_annotations() if a.get("core:label") == "gap"]
    # If the position of a gap is only known approximately, skip the frames in question.
    known = numpy.ones(len(numbers), dtype=bool)
    for gap in gaps:
        start, count = gap["core:sample_start"], gap["core:sample_count"]
        if "within" in gap["core:comment"]:
            known[start:start + count] = False
            exact = False
    wrong = numpy.flatnonzero((numbers != expected) & known)
    if len(sys.argv) > 2:
        with open(sys.argv[2], encoding="utf-8") as report:
            told = json.load(report)
        assert len(told["gaps"]) == len(gaps) > 0, (len(told["gaps"]), len(gaps))
        print(f"{len(gaps)} gaps, {told['lost_frames']} frames, all exact: {exact}")
    if wrong.size:
        at = wrong[0]
        sys.exit(f"frame {at} is {numbers[at]} and should be {expected[at]}")
    print(f"{len(numbers)} frames")


main()
