// SPDX-License-Identifier: MIT OR Apache-2.0
//! One version of an object, and how it is asked for.

use std::path::PathBuf;
use std::sync::Arc;

use crate::net::Net;
use crate::origin::Origin;
use crate::settings::Settings;

#[derive(Debug)]
pub(crate) struct Source {
    /// What messages call it.
    pub(crate) name: PathBuf,
    pub(crate) origin: Origin,
    pub(crate) settings: Settings,
    pub(crate) net: Arc<Net>,
}
