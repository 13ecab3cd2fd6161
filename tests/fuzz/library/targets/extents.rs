// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ranges of files: their layout, the blocks they are cut at, and the requests for them.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| dmabuf_dio::fuzzing::extents(bytes));
