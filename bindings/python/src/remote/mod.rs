// SPDX-License-Identifier: MIT OR Apache-2.0
//! Objects of stores and web servers, by URL.

mod checks;
#[cfg(feature = "remote")]
mod folder;
#[cfg(feature = "remote")]
mod object;
#[cfg(feature = "remote")]
mod open;
#[cfg(feature = "remote")]
mod upload;
#[cfg(feature = "remote")]
mod wait;
#[cfg(not(feature = "remote"))]
mod without;

use std::fmt;
use std::path::{Path, PathBuf};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

pub(crate) use self::checks::{Checks, is_sha256};
use crate::error::note;

/// The URL of an object or a folder, which may have a password or a signature: nothing shows these.
#[derive(Clone)]
pub(crate) struct Url(String);

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Url").field(&self.name()).finish()
    }
}

impl Url {
    /// The URL, if a path is one.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let text = path.to_str().filter(|_| is_url(path))?;
        Some(Self(text.to_owned()))
    }

    /// What messages call it.
    pub(crate) fn name(&self) -> PathBuf {
        let (scheme, rest) = self.0.split_once("://").unwrap_or(("", &self.0));
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if !host.contains('@') && host.contains(':') && path.contains('@') {
            // It may be a password with a slash.
            return format!("{scheme}://").into();
        }
        // A password may have a # or a ?, so these end only what follows it.
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        let shown = format!("{host}{path}");
        let shown = shown.split(['?', '#']).next().unwrap_or_default();
        format!("{scheme}://{shown}").into()
    }

    /// The exception of a call that takes files of this machine.
    pub(crate) fn refused(&self, py: Python<'_>) -> PyErr {
        let text =
            format!("{}: this call takes files of this machine, and no URL", self.name().display());
        let error = PyValueError::new_err(text);
        note(py, &error, "load it first: dmabuf_dio.load()");
        error
    }
}

/// Whether a path is the URL of an object or a folder of them.
#[pyfunction]
#[pyo3(name = "_is_url")]
pub(crate) fn is_url_in_python(path: &str) -> bool {
    is_url(Path::new(path))
}

#[cfg(feature = "remote")]
use dmabuf_dio_remote::is_url;

/// As in `dmabuf_dio_remote`.
#[cfg(not(feature = "remote"))]
fn is_url(path: &Path) -> bool {
    let scheme = path.to_str().and_then(|text| text.split_once("://")).map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| {
        ["s3", "gs", "az", "https", "http"].iter().any(|known| known.eq_ignore_ascii_case(scheme))
    })
}
