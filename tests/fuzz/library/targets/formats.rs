// SPDX-License-Identifier: MIT OR Apache-2.0
//! Formats of samples and pixels, and lists of values of drivers.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| dmabuf_dio_stream::fuzzing::formats(bytes));
