// SPDX-License-Identifier: MIT OR Apache-2.0
//! The staging window, against a device that stores at any time.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| dmabuf_dio::fuzzing::staging(bytes));
