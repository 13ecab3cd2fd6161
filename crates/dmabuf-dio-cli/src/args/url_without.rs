// SPDX-License-Identifier: MIT OR Apache-2.0
//! URLs in place of paths, for a command without the feature `remote`: it refuses them.

use std::path::{Path, PathBuf};

pub(crate) fn is_url(path: &Path) -> bool {
    let schemes = ["s3://", "gs://", "az://", "https://", "http://"];
    path.to_str().is_some_and(|text| schemes.iter().any(|scheme| text.starts_with(scheme)))
}

pub(crate) fn is_prefix(path: &Path) -> bool {
    is_url(path) && path.to_str().is_some_and(|text| text.ends_with('/'))
}

/// Without what may be secret.
pub(crate) fn shown(path: &Path) -> PathBuf {
    if !is_url(path) {
        return path.to_owned();
    }
    path.to_str().and_then(|text| text.split("://").next()).map_or_else(PathBuf::new, Into::into)
}
