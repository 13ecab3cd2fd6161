// SPDX-License-Identifier: MIT OR Apache-2.0
//! Headers and pages of servers, and files of profiles.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| dmabuf_dio_remote::fuzzing::answers(bytes));
