// SPDX-License-Identifier: MIT OR Apache-2.0
//! Command lines, and the arguments of a command that is run.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| dmabuf_dio_cli::fuzzing::command_lines(bytes));
