// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plans of transfers, against a device that fails in every way.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| dmabuf_dio::fuzzing::transfers(bytes));
