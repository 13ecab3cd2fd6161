// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio capture`, `dmabuf-dio video` and `dmabuf-dio replay`.

mod atomic;
pub(crate) mod capture;
mod connect;
mod cyclic;
mod device;
mod files;
mod format;
mod loss;
mod meter;
mod notes;
pub(crate) mod numbered;
mod outcome;
mod recorded;
mod recording;
pub(crate) mod replay;
mod report;
mod ring;
mod rotate;
mod setup;
pub(crate) mod sigmf;
mod target;
mod used;
pub(crate) mod video;
