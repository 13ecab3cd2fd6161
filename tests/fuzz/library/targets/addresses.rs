// SPDX-License-Identifier: MIT OR Apache-2.0
//! URLs: what is shown has no secret, and names stay below their folder.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| dmabuf_dio_remote::fuzzing::addresses(bytes));
