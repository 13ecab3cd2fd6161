// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ranges of objects and their sums, from a server that fails in every way.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| dmabuf_dio_remote::fuzzing::ranges(bytes));
