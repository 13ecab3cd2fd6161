// SPDX-License-Identifier: MIT OR Apache-2.0
//! The keeper's store, and what has to be in it.

use dmabuf_dio_keep::Store;

/// How many names there are.
pub(crate) const KEPT: usize = 2;
/// A tmpfs
pub(crate) const FOLDER: &str = "/run/torture-keep";

/// The bytes, and of which version of which file.
pub(crate) struct Keeping {
    pub(crate) store: Store,
    pub(crate) kept: [Option<(Vec<u8>, u64, u64)>; KEPT],
}

impl Keeping {
    pub(crate) fn create() -> Result<Self, String> {
        let _ = std::fs::remove_dir_all(FOLDER);
        let store = Store::create(FOLDER).map_err(|error| format!("the store: {error}"))?;
        Ok(Self { store, kept: [const { None }; KEPT] })
    }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(FOLDER);
    }
}
