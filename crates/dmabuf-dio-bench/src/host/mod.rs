// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine that is measured on: what it is, and settings of its kernel.

pub(crate) mod facts;
pub(crate) mod setting;
