// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of `/proc` and `/sys`, and words for buffers and backends.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| dmabuf_dio::fuzzing::texts(bytes));
