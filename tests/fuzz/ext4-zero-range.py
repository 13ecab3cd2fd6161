#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the fuzzer found in ext4 of Linux 7.3, without the module: FALLOC_FL_ZERO_RANGE beyond the end of a file leaves the file's
last, partial block in the page cache as it was. Run in a guest: vm/run --kernel 7.3 --no-module -- tests/fuzz/ext4-zero-range.py

Exit status: 0 if the range reads as zeroes, 1 if not."""

import ctypes
import os
import sys

LENGTH, START, ZEROED = 74565, 32768, 65536
FALLOC_FL_ZERO_RANGE = 16

libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
file = os.open("zero-range", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
os.pwrite(file, b"\x24" * LENGTH, 0)
os.fsync(file)
if libc.fallocate(file, FALLOC_FL_ZERO_RANGE, START, ZEROED):
    sys.exit(os.strerror(ctypes.get_errno()))
wrong = [START + at for at, byte in enumerate(os.pread(file, ZEROED, START)) if byte]
if not wrong:
    sys.exit(0)
print(f"{len(wrong)} bytes from {wrong[0]} on are not zero")
sys.exit(1)
