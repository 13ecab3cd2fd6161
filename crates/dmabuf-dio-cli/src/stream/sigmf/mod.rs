// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptions of samples in the Signal Metadata Format (SigMF 1.2.0).

pub(crate) mod archive;
pub(crate) mod datatype;
pub(crate) mod described;
pub(crate) mod names;
pub(crate) mod promises;
pub(crate) mod repair;
pub(crate) mod sidecar;
