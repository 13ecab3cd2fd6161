// SPDX-License-Identifier: MIT OR Apache-2.0
//! Passes blocks from a source to a sink and back.

mod blocks;
mod limits;
mod losses;
mod progress;
mod run;
mod stream;
mod summary;

pub use stream::{Overrun, Stream};
pub use summary::{Begin, Interrupted, Known, State, Summary};
