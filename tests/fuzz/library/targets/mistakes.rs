// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that are no models, and names of parts of models.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| dmabuf_dio_tensors::fuzzing::mistakes(bytes));
