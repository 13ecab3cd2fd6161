// SPDX-License-Identifier: MIT OR Apache-2.0
//! The options `sha256` and `sums` of calls that load objects.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error::note;
use crate::options::Given;
use crate::remote::{Checks, is_sha256};
use crate::source::{Loadable, file_path};

/// The options of a call that loads `path`.
pub(crate) fn checks(py: Python<'_>, given: &Given<'_>, path: &Loadable) -> PyResult<Checks> {
    let sha256 = given.take::<String>("sha256")?;
    let sums = given.take::<Py<PyAny>>("sums")?;
    let sums = sums.map(|path| file_path(path.bind(py))).transpose()?;
    if sha256.as_ref().is_some_and(|text| !is_sha256(text)) {
        return Err(PyValueError::new_err("sha256 must have 64 hexadecimal digits"));
    }
    if (sha256.is_some() || sums.is_some()) && !matches!(path, Loadable::Object(_)) {
        let error = PyValueError::new_err("sha256 and sums are for objects, and this is a file");
        note(py, &error, "name an object by its URL");
        return Err(error);
    }
    Ok(Checks { sha256, sums })
}
