// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the bytes of an object are compared with.

use std::path::PathBuf;

/// The SHA-256 of the whole, as 64 hexadecimal digits, and a file with the sums of its chunks.
#[derive(Clone, Debug, Default)]
#[cfg_attr(not(feature = "remote"), allow(dead_code, reason = "no object is opened"))]
pub(crate) struct Checks {
    pub(crate) sha256: Option<String>,
    pub(crate) sums: Option<PathBuf>,
}

/// Whether it can be compared with. Without stores nothing is.
pub(crate) fn is_sha256(text: &str) -> bool {
    #[cfg(feature = "remote")]
    return dmabuf_dio_remote::Sums::parse_sha256(text).is_some();
    #[cfg(not(feature = "remote"))]
    return !text.is_empty();
}

#[cfg(feature = "remote")]
impl Checks {
    /// How an object is opened that is checked so.
    pub(super) fn settings(&self) -> Result<dmabuf_dio_remote::Settings, dmabuf_dio::Error> {
        use dmabuf_dio_remote::{Settings, Sums};
        let sums = self.sums.as_deref().map(Sums::read).transpose()?.map(std::sync::Arc::new);
        let sha256 = self.sha256.as_deref().and_then(Sums::parse_sha256);
        Ok(Settings { sha256, sums, ..Settings::default() })
    }
}
