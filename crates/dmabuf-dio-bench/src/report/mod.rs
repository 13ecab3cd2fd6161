// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results as text, Markdown and JSON.

pub(crate) mod grid;
pub(crate) mod json;
pub(crate) mod page;
pub(crate) mod row;
