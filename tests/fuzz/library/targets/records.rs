// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is written beside a kept file.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| dmabuf_dio_keep::fuzzing::records(bytes));
