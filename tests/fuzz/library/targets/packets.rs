// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a holder sends to who connects.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| dmabuf_dio_keep::fuzzing::packets(bytes));
