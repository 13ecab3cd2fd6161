// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio capture` and `dmabuf-dio replay`.

mod address;
mod archive;
pub(crate) mod args;
pub(crate) mod capture;
mod device;
mod format;
mod input;
mod meter;
mod notes;
mod promises;
mod recording;
mod repair;
pub(crate) mod replay;
mod report;
mod rotate;
mod setup;
mod sigmf;
mod target;
mod video;

pub(crate) use device::{one as one_device, unknown as unknown_device};
pub(crate) use video::find as find_video;
