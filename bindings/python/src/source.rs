// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files as Python names them: a path, a descriptor, or an object with one; and objects of stores, by their URLs.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Seek as _, SeekFrom};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use dmabuf_dio::content::Content;
use dmabuf_dio::{CancelToken, Error, Loader};
use pyo3::exceptions::{PyOSError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyString};

use crate::error::raise_kept;
use crate::remote::{Checks, Url};

/// A file of this machine, to load from or to save to.
#[derive(Debug)]
pub(crate) enum Source {
    Path(PathBuf),
    /// A duplicate: the caller may close its own meanwhile.
    Fd(OwnedFd),
}

/// What can be loaded, or saved to.
#[derive(Debug)]
pub(crate) enum Loadable {
    File(Source),
    /// An object of a store.
    Object(Url),
}

/// The same, open as far as it has to be.
pub(crate) enum Opened<'s> {
    File(&'s Source),
    Content(Arc<dyn Content>),
}

impl<'py> FromPyObject<'_, 'py> for Source {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        match object.extract()? {
            Loadable::File(source) => Ok(source),
            Loadable::Object(url) => Err(url.refused(object.py())),
        }
    }
}

impl<'py> FromPyObject<'_, 'py> for Loadable {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let descriptor = |fd| Ok(Self::File(Source::Fd(duplicate(fd)?)));
        if object.is_instance_of::<PyInt>() {
            return descriptor(object.extract()?);
        }
        match path(&object) {
            Ok(path) => Ok(match Url::of(&path) {
                Some(url) => Self::Object(url),
                None => Self::File(Source::Path(path)),
            }),
            Err(error) if error.is_instance_of::<PyTypeError>(object.py()) => {
                if object.hasattr("fileno")? {
                    descriptor(object.call_method0("fileno")?.extract()?)
                } else {
                    Err(error)
                }
            }
            Err(error) => Err(error),
        }
    }
}

/// `os.fspath`, and the file system's encoding.
pub(crate) fn path(object: &Bound<'_, PyAny>) -> PyResult<PathBuf> {
    // SAFETY: the object is valid, and the result is checked.
    let plain = unsafe {
        Bound::from_owned_ptr_or_err(object.py(), pyo3::ffi::PyOS_FSPath(object.as_ptr()))?
    };
    let path = match plain.cast::<PyBytes>() {
        Ok(bytes) => OsStr::from_bytes(bytes.as_bytes()).to_owned(),
        Err(_) => plain.cast::<PyString>()?.extract::<OsString>()?,
    };
    if path.as_bytes().contains(&0) {
        return Err(PyValueError::new_err("embedded null byte"));
    }
    Ok(path.into())
}

/// The path that a path means: `keep:NAME` is that of a kept file or folder.
pub(crate) fn found(py: Python<'_>, path: PathBuf) -> PyResult<PathBuf> {
    let found = dmabuf_dio_keep::resolve(&path).map_err(|error| raise_kept(py, &error))?;
    Ok(found.into_owned())
}

/// The same of a file of this machine.
pub(crate) fn file_path(object: &Bound<'_, PyAny>) -> PyResult<PathBuf> {
    let path = path(object)?;
    match Url::of(&path) {
        Some(url) => Err(url.refused(object.py())),
        None => Ok(path),
    }
}

/// Duplicates a descriptor of the caller.
pub(crate) fn duplicate(fd: i32) -> PyResult<OwnedFd> {
    if fd < 0 {
        return Err(PyValueError::new_err("negative file descriptor"));
    }
    // SAFETY: the descriptor is borrowed for this call; if it is not open, the call fails.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    fd.try_clone_to_owned()
        .map_err(|error| PyOSError::new_err((error.raw_os_error(), "cannot use the descriptor")))
}

impl Source {
    /// The length of the file; `None` if it cannot be opened, which the transfer reports with more
    /// detail.
    fn end(&self) -> Option<u64> {
        let mut file = match self {
            Self::Path(path) => File::open(path),
            // Opened again: the position of the caller's descriptor stays.
            Self::Fd(fd) => File::open(format!("/proc/self/fd/{}", fd.as_raw_fd())),
        }
        .ok()?;
        file.seek(SeekFrom::End(0)).ok()
    }

    /// The path, if there is one.
    pub(crate) fn name(&self) -> Option<PathBuf> {
        match self {
            Self::Path(path) => Some(path.clone()),
            Self::Fd(_) => None,
        }
    }

    /// The file that a path means: `keep:NAME` is a kept one.
    pub(crate) fn found(self, py: Python<'_>) -> PyResult<Self> {
        match self {
            Self::Path(path) => Ok(Self::Path(found(py, path)?)),
            fd @ Self::Fd(_) => Ok(fd),
        }
    }

    fn loader(&self) -> Loader<'_> {
        match self {
            Self::Path(path) => Loader::new(path),
            Self::Fd(fd) => Loader::from_fd(fd.as_fd()),
        }
    }

    pub(crate) fn saver(&self) -> dmabuf_dio::Saver<'_> {
        match self {
            Self::Path(path) => dmabuf_dio::Saver::new(path),
            Self::Fd(fd) => dmabuf_dio::Saver::to_fd(fd.as_fd()),
        }
    }

    pub(crate) fn gatherer(&self) -> dmabuf_dio::gather::Gatherer<'_> {
        match self {
            Self::Path(path) => dmabuf_dio::gather::Gatherer::new(path),
            Self::Fd(fd) => dmabuf_dio::gather::Gatherer::from_fd(fd.as_fd()),
        }
    }
}

impl Loadable {
    /// As for a [`Source`]; an object stays what it is.
    pub(crate) fn found(self, py: Python<'_>) -> PyResult<Self> {
        match self {
            Self::File(source) => source.found(py).map(Self::File),
            object @ Self::Object(_) => Ok(object),
        }
    }

    /// Opens it, if it is an object. To be called in a thread that may wait for it.
    pub(crate) fn open(&self, cancel: &CancelToken, checks: &Checks) -> Result<Opened<'_>, Error> {
        match self {
            Self::File(source) => Ok(Opened::File(source)),
            Self::Object(url) => url.open(cancel, checks).map(Opened::Content),
        }
    }
}

impl Opened<'_> {
    /// The length; `None` of a file that cannot be opened, which the transfer reports with more detail.
    pub(crate) fn end(&self) -> Option<u64> {
        match self {
            Self::File(source) => source.end(),
            Self::Content(content) => Some(content.length()),
        }
    }

    pub(crate) fn loader(&self) -> Loader<'_> {
        match self {
            Self::File(source) => source.loader(),
            Self::Content(content) => Loader::from_content(Arc::clone(content)),
        }
    }
}
