// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio capture`, `dmabuf-dio replay` and `dmabuf-dio receive`.

mod address;
pub(crate) mod args;
pub(crate) mod capture;
mod device;
mod input;
mod meter;
pub(crate) mod receive;
mod received;
pub(crate) mod replay;
mod report;
mod setup;
mod sigmf;
mod target;

pub(crate) use device::unknown as unknown_device;
