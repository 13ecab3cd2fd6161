// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a program that loads a file says to the benchmark: our own methods and others' loaders alike.
//!
//! It is started with the path of the file as an argument, followed by `--verify SEED` where bytes
//! are to be compared. When it is ready to begin it prints [`READY`] and waits for a line on its
//! standard input. Then it loads, and prints a [`LoaderReport`] as one line. If it cannot, it
//! says why in the last line of its standard error and exits with another code than 0.

use serde::{Deserialize, Serialize};

/// The first line.
pub(crate) const READY: &str = r#"{"ready":true}"#;

/// The second line: what loading took, from nothing but the path to all bytes in memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LoaderReport {
    pub(crate) seconds: f64,
    pub(crate) user_seconds: f64,
    pub(crate) sys_seconds: f64,
    /// Of giving the memory back.
    pub(crate) release_seconds: Option<f64>,
    pub(crate) bytes: u64,
    /// `null` if nobody asked.
    pub(crate) verified: Option<bool>,
    /// Of the loader.
    pub(crate) version: Option<String>,
    pub(crate) note: Option<String>,
    /// What the memory came in, if the loader knows.
    #[serde(default)]
    pub(crate) pages: Option<PagesGot>,
}

/// In what pages memory came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PagesGot {
    /// Bytes of most pages.
    pub(crate) page_size: u64,
    /// Bytes that are in huge pages.
    pub(crate) huge_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_print_is_understood() {
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
