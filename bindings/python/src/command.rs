// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command `dmabuf-dio`, which the wheel has besides the package: its code is in the extension once.

use std::ffi::OsString;
use std::io::Write as _;

use pyo3::prelude::*;

/// Runs the command with the words of its command line, and returns the exit code.
#[pyfunction]
pub(crate) fn command(py: Python<'_>, words: Vec<OsString>) -> u8 {
    py.detach(|| {
        let code = dmabuf_dio_cli::run(&words);
        // Rust does this at the end of a program that is written in Rust.
        let _ = std::io::stdout().flush();
        code
    })
}
