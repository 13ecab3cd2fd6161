// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library with every backend of this machine: each byte is compared, bad input is refused,
//! reports are correct. One program, because linking takes longer than these tests.

#[path = "../common/mod.rs"]
mod common;

mod bad_input;
mod buf;
mod content;
mod control;
mod device;
mod durable;
mod errors;
mod filter;
mod lending;
mod load;
mod load_file;
mod load_into;
mod placement;
mod populate;
mod private;
mod probe;
mod rings;
mod save_from;
mod seals;
mod shared;
mod target;
