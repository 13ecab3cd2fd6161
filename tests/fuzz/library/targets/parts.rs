// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parts of tensors, the reads for them, and saved ones, against loops over bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| dmabuf_dio_tensors::fuzzing::parts(bytes));
