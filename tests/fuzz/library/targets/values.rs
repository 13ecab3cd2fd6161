// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values of options: sizes, rates, times, addresses.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| dmabuf_dio_cli::fuzzing::values(bytes));
