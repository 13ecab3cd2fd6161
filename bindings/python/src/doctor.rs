// SPDX-License-Identifier: MIT OR Apache-2.0
//! `doctor()`: what works here, what does not, and the remedies.

use std::os::fd::AsRawFd as _;

use dmabuf_dio::probe::{self, FileFacts, System};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::report::{as_dict, json};
use crate::run::{self, Watch};
use crate::source::Source;

#[derive(serde::Serialize)]
struct Found {
    schema: u32,
    #[serde(flatten)]
    system: System,
    file: Option<FileFacts>,
}

/// The features of the kernel, its devices and a file, as `dmabuf-dio doctor --json` prints them.
#[pyfunction]
#[pyo3(signature = (path = None))]
pub(crate) fn doctor<'py>(py: Python<'py>, path: Option<Source>) -> PyResult<Bound<'py, PyDict>> {
    let path = path.map(|path| path.found(py)).transpose()?;
    let found = run::transfer(py, &Watch::default(), move |_| {
        let file = match &path {
            None => None,
            Some(Source::Path(path)) => Some(probe::file(path)?),
            // The duplicate stays open until it was looked at.
            Some(Source::Fd(fd)) => Some(probe::file(format!("/proc/self/fd/{}", fd.as_raw_fd()))?),
        };
        Ok(Found { schema: 1, system: probe::system(), file })
    })?;
    as_dict(py, &json(&found)?)
}
