// SPDX-License-Identifier: MIT OR Apache-2.0
//! How rows are run, what they cost, and how they end.

pub(crate) mod clock;
pub(crate) mod outcome;
pub(crate) mod phase;
pub(crate) mod select;
pub(crate) mod time;
pub(crate) mod turns;
