// SPDX-License-Identifier: MIT OR Apache-2.0
//! URLs in place of paths.

use std::path::{Path, PathBuf};

pub(crate) fn is_url(path: &Path) -> bool {
    dmabuf_dio_remote::is_url(path)
}

/// Whether it stands for all objects whose names begin so. What has a query is one object.
pub(crate) fn is_prefix(path: &Path) -> bool {
    let is_folder = |text: &str| text.ends_with('/') && !text.contains(['?', '#']);
    is_url(path) && path.to_str().is_some_and(is_folder)
}

/// Whether it was to be a URL: there is no file of that name.
pub(crate) fn is_mistyped(path: &Path) -> bool {
    dmabuf_dio_remote::is_nearly_url(path) && !path.exists()
}

/// A path as it is shown: URLs without what may be secret.
pub(crate) fn shown(path: &Path) -> PathBuf {
    match path.to_str() {
        Some(url) if is_url(path) || is_mistyped(path) => dmabuf_dio_remote::shown(url),
        _ => path.to_owned(),
    }
}
