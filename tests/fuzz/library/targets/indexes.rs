// SPDX-License-Identifier: MIT OR Apache-2.0
//! The index of a model in several files: no path leads out of its folder.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| dmabuf_dio_tensors::fuzzing::indexes(bytes));
