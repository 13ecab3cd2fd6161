// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio video`.

pub(crate) mod capture;
mod player;
mod report;
