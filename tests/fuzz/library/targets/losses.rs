// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ledger of gaps, against a device that knows its losses.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| dmabuf_dio_stream::fuzzing::losses(bytes));
