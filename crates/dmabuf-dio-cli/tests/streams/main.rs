// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio capture` and `replay`, run as a user does, with the simulated devices of `kernel/sim`, if
//! they are loaded.

#[path = "../common/mod.rs"]
mod common;

mod basics;
mod capture;
mod devices;
mod format;
mod losses;
mod pipes;
mod power_cut;
mod refused;
mod replay;
mod told;
mod triggers;
mod unfinished;
