// SPDX-License-Identifier: MIT OR Apache-2.0
//! A command without the feature `remote` has no options for objects.

use std::path::Path;

use clap::Args;
use dmabuf_dio_terminal::exit::{Failure, USAGE};

use super::url::{is_url, shown};

pub(crate) const WHAT: &str = "this command was built without its feature remote";
pub(crate) const REMEDY: &str = "build it with its default features, or download the object first";

/// No options.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct RemoteArgs {}

impl RemoteArgs {
    pub(crate) fn without_sums(&self) -> Self {
        self.clone()
    }

    #[allow(clippy::unused_self, reason = "as with the feature")]
    pub(crate) fn checks(&self) -> bool {
        false
    }

    #[allow(clippy::unused_self, reason = "as with the feature")]
    pub(crate) fn digest(&self, _url: &Path) -> String {
        String::new()
    }

    #[allow(clippy::unused_self, reason = "as with the feature")]
    pub(crate) fn check(&self, path: &Path) -> Result<(), Failure> {
        if is_url(path) { Err(missing(path)) } else { Ok(()) }
    }
}

/// The failure of what needs the feature.
pub(crate) fn missing(path: &Path) -> Failure {
    Failure::new(USAGE, format!("{}: {WHAT}", shown(path).display()), REMEDY)
}
