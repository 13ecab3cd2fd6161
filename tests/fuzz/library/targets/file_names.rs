// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of numbered files of recordings, and of parts of models.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| dmabuf_dio_cli::fuzzing::file_names(bytes));
