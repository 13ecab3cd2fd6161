// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio capture` and `dmabuf-dio replay`.

mod archive;
pub(crate) mod args;
pub(crate) mod capture;
mod device;
mod format;
mod meter;
mod recording;
pub(crate) mod replay;
mod report;
mod rotate;
mod sigmf;
mod target;
