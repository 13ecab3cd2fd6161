// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of sums.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| dmabuf_dio_remote::fuzzing::sums(bytes));
