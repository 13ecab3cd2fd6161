// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio keep`, and what takes `keep:NAME`.

#[path = "../common/mod.rs"]
mod common;

mod commands;
mod inside;
mod kills;
mod room;
mod trace;
