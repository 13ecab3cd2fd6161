// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths of what is kept, names of descriptors, lists of permissions.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| dmabuf_dio_keep::fuzzing::paths(bytes));
