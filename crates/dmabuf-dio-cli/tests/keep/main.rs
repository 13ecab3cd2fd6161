// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio keep`, and what takes `keep:NAME`.

#[path = "../common/mod.rs"]
mod common;

mod commands;
mod hold;
mod inside;
mod kills;
mod manager;
mod room;
mod trace;
