// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs rows, and measures their cost and outcome.

pub(crate) mod clock;
pub(crate) mod meter;
pub(crate) mod outcome;
pub(crate) mod phase;
pub(crate) mod time;
pub(crate) mod turns;
