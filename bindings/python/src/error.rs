// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors, as Python's: `OSError` with number and file name, `ValueError` for arguments. What to do
//! about an error is a note of the exception.

use std::path::Path;

use dmabuf_dio::{Direction, Error, Words};
use pyo3::exceptions::{
    PyBufferError, PyEOFError, PyKeyError, PyMemoryError, PyOSError, PyValueError,
};
use pyo3::prelude::*;

use crate::report::Refusal;

/// How hints name Python's calls and arguments.
pub(crate) const WORDS: Words = Words {
    kind: |kind| format!("kind={:?}", kind.name()),
    setting: str::to_owned,
    room: "Gathering.room()",
    tensors: "Model.keys()",
};

/// The exception for an error of the library.
pub(crate) fn raise(py: Python<'_>, error: &Error) -> PyErr {
    let exception = exception(py, error).unwrap_or_else(|error| error);
    note(py, &exception, &error.hint().in_words(&WORDS));
    if let refusals @ [_, ..] = error.refusals() {
        let refusals: Vec<_> = refusals.iter().map(Refusal::from).collect();
        // Without the reasons the exception is still the right one.
        let _ = exception.value(py).setattr("refusals", refusals);
    }
    exception
}

/// The exception for an error of a model.
pub(crate) fn raise_tensors(py: Python<'_>, error: &dmabuf_dio_tensors::Error) -> PyErr {
    use dmabuf_dio_tensors::Error as Model;
    let text = error.to_string();
    let exception = match error {
        Model::Load { path, source } => {
            let exception = raise(py, source);
            if exception.is_instance_of::<PyOSError>(py) {
                // The library knows a descriptor.
                let _ = exception.value(py).setattr("filename", path.as_os_str());
            }
            return exception;
        }
        Model::Buffer(source) => return raise(py, source),
        Model::Open { path, source } | Model::Read { path, source } => {
            let number = source.raw_os_error().unwrap_or(libc::EIO);
            let text = dmabuf_dio::Errno::from_raw(number).to_string();
            os_error(py, number, &text, Some(path))
        }
        Model::NotAFile { path } => os_error(py, libc::EINVAL, "not a regular file", Some(path)),
        Model::NoModel { path, .. }
        | Model::MissingParts { path, .. }
        | Model::MissingFiles { path, .. } => {
            let text = text.split_once(": ").map_or(&*text, |(_, text)| text);
            os_error(py, libc::ENOENT, text, Some(path))
        }
        Model::NoTensor { name } => Ok(PyKeyError::new_err(name.clone())),
        _ => Ok(PyValueError::new_err(text)),
    };
    let exception = exception.unwrap_or_else(|error| error);
    note(py, &exception, &error.hint().in_words(&WORDS));
    exception
}

/// The exception for an error of a stream.
pub(crate) fn raise_stream(py: Python<'_>, error: &dmabuf_dio_stream::Error) -> PyErr {
    use dmabuf_dio_stream::Error as Stream;
    let exception = match error {
        Stream::Transfer(error) => return raise(py, error),
        Stream::Stream { device, call, errno } => {
            os_error(py, errno.raw(), &format!("cannot {call}: {errno}"), Some(Path::new(device)))
        }
        error => Ok(PyValueError::new_err(error.to_string())),
    };
    let exception = exception.unwrap_or_else(|error| error);
    note(py, &exception, &error.hint().in_words(&WORDS));
    exception
}

fn exception(py: Python<'_>, error: &Error) -> PyResult<PyErr> {
    let text = error.to_string();
    let path = path_of(error);
    // Python appends the file name itself.
    let prefix = path.map(|path| format!("{}: ", path.display())).unwrap_or_default();
    let text = text.strip_prefix(&prefix).unwrap_or(&text);
    Ok(match error {
        Error::NoMemory { .. } => PyMemoryError::new_err(text.to_owned()),
        Error::ReadOnlyBuffer => PyBufferError::new_err(text.to_owned()),
        Error::ShortFile { done: 1.., .. } => PyEOFError::new_err(error.to_string()),
        Error::NotAFile { found, .. } => {
            let number = if *found == "a directory" { libc::EISDIR } else { libc::EINVAL };
            os_error(py, number, text, path)?
        }
        Error::Unavailable { .. }
        | Error::Cancelled { .. }
        | Error::Access { .. }
        | Error::DanglingLink { .. } => os_error(py, error.number().raw(), text, path)?,
        error if error.errno().is_some() => os_error(py, error.number().raw(), text, path)?,
        error => PyValueError::new_err(error.to_string()),
    })
}

/// `OSError(number, text, path)`, which is the subclass that belongs to the number.
fn os_error(py: Python<'_>, number: i32, text: &str, path: Option<&Path>) -> PyResult<PyErr> {
    let class = py.get_type::<PyOSError>();
    let path = path.map(Path::as_os_str);
    Ok(PyErr::from_value(class.call1((number, text, path))?))
}

fn path_of(error: &Error) -> Option<&Path> {
    match error {
        Error::Open { path, .. }
        | Error::Access { path, .. }
        | Error::NotAFile { path, .. }
        | Error::DanglingLink { path, .. }
        | Error::Transfer { path, .. }
        | Error::Unsynced { path, .. }
        | Error::InFlight { path, .. }
        | Error::Target { path, .. }
        | Error::OldFileGone { path, .. }
        | Error::Cancelled { path, .. } => Some(path),
        _ => None,
    }
}

/// Adds a line to what is printed of an exception.
pub(crate) fn note(py: Python<'_>, error: &PyErr, text: &str) {
    // Without the note the exception is still the right one.
    let _ = error.value(py).call_method1("add_note", (text,));
}

/// The exception for a piece of a gather that could not be read.
pub(crate) fn raise_piece(
    py: Python<'_>,
    number: usize,
    error: dmabuf_dio::gather::PieceError,
    path: Option<&Path>,
) -> PyErr {
    use dmabuf_dio::gather::PieceError;
    let text = format!("piece {number}: {error}");
    let exception = match error {
        PieceError::Failed { errno, .. } => os_error(py, errno.raw(), &text, path),
        PieceError::EndOfFile { .. } => Ok(PyEOFError::new_err(text)),
        _ => Ok(PyValueError::new_err(text)),
    };
    let exception = exception.unwrap_or_else(|error| error);
    note(py, &exception, &error.hint().in_words(&WORDS));
    exception
}

/// What a direction is called in a sentence of an exception.
pub(crate) fn verb(direction: Direction) -> &'static str {
    match direction {
        Direction::Load => "load",
        Direction::Save => "save",
    }
}
