// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio capture` and `dmabuf-dio replay`.

pub(crate) mod args;
pub(crate) mod capture;
mod device;
mod meter;
pub(crate) mod replay;
mod report;
mod setup;
mod sigmf;
mod target;

pub(crate) use device::unknown as unknown_device;
