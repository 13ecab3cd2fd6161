// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that blocks are written to and read from.
//!
//! With the module's slots, one `io_uring` serves all requests, and the blocks' pages are lent to
//! it once. Without them, a thread transfers block after block with the best available backend.

mod blocks;
mod edges;
pub(crate) mod lent;
mod rotate;
mod worker;

pub use blocks::{FileSink, FileSource};
pub use rotate::RotatingSink;
