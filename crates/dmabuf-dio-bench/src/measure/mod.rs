// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two meters: time, and all that the CPU did.

pub(crate) mod clock;
pub(crate) mod meter;
pub(crate) mod phase;
