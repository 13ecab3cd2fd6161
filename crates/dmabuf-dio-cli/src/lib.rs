// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the programs of this project share: sizes on the command line, how a program fails, what
//! signals do, progress. It is made for them and changes with them; programs that load files want
//! the library, `dmabuf-dio`.

pub mod exit;
pub mod progress;
pub mod signals;
pub mod size;
