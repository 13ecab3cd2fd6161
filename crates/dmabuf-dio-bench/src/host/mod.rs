// SPDX-License-Identifier: MIT OR Apache-2.0
//! Facts about the machine, its memory, and settings of its kernel.

pub(crate) mod facts;
pub(crate) mod memory;
pub(crate) mod setting;
