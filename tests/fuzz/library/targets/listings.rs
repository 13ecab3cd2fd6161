// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keys of a store as names of files.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| dmabuf_dio_remote::fuzzing::listings(bytes));
