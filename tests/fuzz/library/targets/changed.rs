// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets that were changed, and paths that lead elsewhere.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| dmabuf_dio_keep::fuzzing::changed(bytes));
