// SPDX-License-Identifier: MIT OR Apache-2.0
//! The protocol between the benchmark and a program that loads a file, built-in or other.
//!
//! The program's argument is the path of the file, followed by `--verify SEED` if it is to compare
//! bytes. When ready, it prints [`READY`] and waits for a line on its standard input. Then it loads
//! the file and prints a [`LoaderReport`] in one line. If it fails, it prints the reason as the last
//! line of its standard error and exits with a code other than 0.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::safetensors::Tensors;
use crate::ways::held::PagesGot;

/// The first line.
pub(crate) const READY: &str = r#"{"ready":true}"#;

/// The second line: the cost of loading, from the path to all bytes in memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LoaderReport {
    pub(crate) seconds: f64,
    pub(crate) user_seconds: f64,
    pub(crate) sys_seconds: f64,
    /// Time to free the memory.
    pub(crate) release_seconds: Option<f64>,
    pub(crate) bytes: u64,
    /// `null` without `--verify`.
    pub(crate) verified: Option<bool>,
    /// Version of the loader.
    pub(crate) version: Option<String>,
    pub(crate) note: Option<String>,
    /// The memory's page sizes, if the loader knows them.
    #[serde(default)]
    pub(crate) pages: Option<PagesGot>,
}

/// A file to load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    pub(crate) path: &'a Path,
    pub(crate) len: u64,
    /// Offset of its data.
    pub(crate) data_start: u64,
    pub(crate) seed: u64,
    pub(crate) tensors: Tensors,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_of_other_loaders_are_parsed() {
        let line = r#"{"seconds": 0.5, "user_seconds": 0.1, "sys_seconds": 0.2,
            "release_seconds": null, "bytes": 4096, "verified": null, "version": "1.2",
            "note": null, "more": [1]}"#;
        let told: LoaderReport = serde_json::from_str(line).expect("a result");
        assert_eq!((told.bytes, told.pages, told.version.as_deref()), (4096, None, Some("1.2")));
        let again = serde_json::to_string(&told).expect("JSON");
        assert!(!again.contains('\n'));
        assert_eq!(serde_json::from_str::<LoaderReport>(&again).expect("a result"), told);
    }
}
