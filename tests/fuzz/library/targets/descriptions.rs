// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptions of samples (SigMF).
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| dmabuf_dio_cli::fuzzing::descriptions(bytes));
