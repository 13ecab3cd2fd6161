// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors, as Python's: `OSError` with number and file name, `ValueError` for arguments. A note of
//! the exception has the remedy.

use std::path::Path;

use dmabuf_dio::{Error, Hint, Words};
use pyo3::exceptions::{
    PyBufferError, PyEOFError, PyKeyError, PyMemoryError, PyOSError, PyValueError,
};
use pyo3::prelude::*;

use crate::report::Refusal;

/// How hints name Python's calls and arguments.
const WORDS: Words = Words {
    kind: |kind| format!("kind={:?}", kind.name()),
    setting: str::to_owned,
    room: "spare",
    tensors: "Model.keys()",
};

/// The exception for an error of the library.
pub(crate) fn raise(py: Python<'_>, error: &Error) -> PyErr {
    let exception = exception(py, error);
    hint(py, &exception, &error.hint());
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
        Model::Save(source) => {
            let exception = raise(py, source);
            if source.keeps_old_file() {
                note(py, &exception, "the path is as it was before");
            }
            return exception;
        }
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
        Model::NoTensor { name } => PyKeyError::new_err(name.clone()),
        _ => PyValueError::new_err(text),
    };
    hint(py, &exception, &error.hint());
    exception
}

/// The exception for an error of what is kept.
pub(crate) fn raise_kept(py: Python<'_>, error: &dmabuf_dio_keep::Error) -> PyErr {
    use dmabuf_dio_keep::Error as Kept;
    let exception = match error {
        Kept::Load(error) => return raise(py, error),
        Kept::Name { .. } => PyValueError::new_err(error.to_string()),
        Kept::Io { path, .. } => {
            let text = dmabuf_dio::Errno::from_raw(error.number()).to_string();
            os_error(py, error.number(), &text, Some(path))
        }
        _ => os_error(py, error.number(), &error.to_string(), None),
    };
    hint(py, &exception, &error.hint());
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
        error => PyValueError::new_err(error.to_string()),
    };
    hint(py, &exception, &error.hint());
    exception
}

fn exception(py: Python<'_>, error: &Error) -> PyErr {
    let text = error.to_string();
    let path = path_of(error);
    // Python appends the file name itself.
    let prefix = path.map(|path| format!("{}: ", path.display())).unwrap_or_default();
    let text = text.strip_prefix(&prefix).unwrap_or(&text);
    match error {
        Error::NoMemory { .. } | Error::NodeMemory { .. } => {
            PyMemoryError::new_err(text.to_owned())
        }
        Error::ReadOnlyBuffer => PyBufferError::new_err(text.to_owned()),
        Error::ShortFile { done: 1.., .. } => PyEOFError::new_err(error.to_string()),
        Error::NotAFile { found, .. } => {
            let number = if *found == "a directory" { libc::EISDIR } else { libc::EINVAL };
            os_error(py, number, text, path)
        }
        _ if is_system_error(error) => os_error(py, error.number().raw(), text, path),
        error => PyValueError::new_err(error.to_string()),
    }
}

/// Whether it is an error of the system, not of an argument.
fn is_system_error(error: &Error) -> bool {
    use Error::{Access, Cancelled, DanglingLink, Unavailable};
    let has_no_errno = matches!(
        error,
        Unavailable { .. } | Cancelled { .. } | Access { .. } | DanglingLink { .. }
    );
    has_no_errno || error.errno().is_some()
}

/// `OSError(number, text, path)`, which is the subclass that belongs to the number.
fn os_error(py: Python<'_>, number: i32, text: &str, path: Option<&Path>) -> PyErr {
    let made = py.get_type::<PyOSError>().call1((number, text, path.map(Path::as_os_str)));
    made.map_or_else(|error| error, PyErr::from_value)
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
        | Error::Source { path, .. }
        | Error::Cancelled { path, .. }
        | Error::Content { name: path, .. } => Some(path),
        _ => None,
    }
}

/// Adds a line to the printed exception.
pub(crate) fn note(py: Python<'_>, error: &PyErr, text: &str) {
    // Without the note the exception is still the right one.
    let _ = error.value(py).call_method1("add_note", (text,));
}

/// Adds what to do, with the names that the calls have in Python.
pub(crate) fn hint(py: Python<'_>, error: &PyErr, hint: &Hint) {
    let text = match hint {
        Hint::SpareBytes => {
            "set more spare bytes, spare=(start, length), or align the piece".into()
        }
        hint => hint.in_words(&WORDS),
    };
    note(py, error, &text);
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
        PieceError::EndOfFile { .. } => PyEOFError::new_err(text),
        _ => PyValueError::new_err(text),
    };
    hint(py, &exception, &error.hint());
    exception
}
