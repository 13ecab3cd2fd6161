// SPDX-License-Identifier: MIT OR Apache-2.0
//! Samples in any format, converted to any other.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| dmabuf_dio_stream::fuzzing::conversions(bytes));
