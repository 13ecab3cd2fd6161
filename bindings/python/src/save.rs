// SPDX-License-Identifier: MIT OR Apache-2.0
//! Saves tensors of other libraries: what `_save.py` makes `save_file()` of.

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dmabuf_dio::{Direction, Error as Transfer};
use dmabuf_dio_tensors::{Dtype, Error, Malformed, Outline, TensorSaver};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::cancel::CancelToken;
use crate::error::{hint, raise_tensors};
use crate::report::Report;
use crate::run::{self, Control, Serve, Watch};
use crate::source::file_path;

/// How often a thread that waits for a tensor looks whether the call was cancelled.
const TICK: Duration = Duration::from_millis(50);

/// Address and length of a tensor's bytes.
type Place = (usize, usize);

/// Name, type, shape, and where the bytes are; `None` if `fetch` puts them somewhere when it is their turn.
type Given = (String, String, Vec<u64>, Option<Place>);

/// Saves tensors to a safetensors file. `fetch(index)` returns where a tensor's bytes are, and keeps them until its
/// next call. The caller keeps all others alive during the call. `refused` is the exception for tensors that cannot be
/// saved.
#[pyfunction]
#[pyo3(name = "_save_tensors", signature = (tensors, filename, metadata, fetch, refused, progress, cancel, /))]
pub(crate) fn save_tensors(
    py: Python<'_>,
    tensors: Vec<Given>,
    filename: &Bound<'_, PyAny>,
    metadata: Option<BTreeMap<String, String>>,
    fetch: Py<PyAny>,
    refused: Bound<'_, PyAny>,
    progress: Option<Bound<'_, PyAny>>,
    cancel: Option<PyRef<'_, CancelToken>>,
) -> PyResult<Report> {
    let filename = file_path(filename)?;
    let saver = TensorSaver::new(&filename);
    let saver = match metadata {
        Some(metadata) => saver.metadata(metadata),
        None => saver,
    };
    let (mut outlines, mut places) = (Vec::new(), Vec::new());
    for (name, dtype, shape, place) in tensors {
        let known = Dtype::SAFETENSORS.into_iter().find(|one| one.name() == dtype);
        let unknown = || PyValueError::new_err(format!("safetensors has no type {dtype:?}"));
        let outline = Outline { name, dtype: known.ok_or_else(unknown)?, shape };
        let found = place.map(|(_, len)| len as u64);
        if let (Some(found), Some(len)) = (found, outline.dtype.byte_len(&outline.shape)) {
            if found != len {
                let reason = Malformed::Length { name: outline.name, found };
                return Err(not_saved(&refused, &Error::NotSaved { path: filename, reason }));
            }
        }
        outlines.push(outline);
        places.push(place);
    }
    let (fetcher, serve) = fetching(fetch);
    let cancel = cancel.map(|token| token.0.clone());
    let watch = Watch { progress, cancel, serve: Some(serve) };
    let saved = run::call(py, &watch, move |control| {
        let told = control.clone();
        let saver = saver
            .cancel(control.cancel.clone())
            .progress(move |progress| told.moved(progress.done, progress.total));
        let open = |index: usize| {
            let place = places[index].map_or_else(|| fetcher.fetch(control, index), Ok)?;
            // SAFETY: `_save.py` passes places of tensors that it keeps until the call has ended, or until it is
            // asked for another, by which time the library has dropped this slice.
            Ok(unsafe { bytes_at(place) })
        };
        saver.save_with(&outlines, open).map_err(|error| called_off(error, control))
    })?;
    match saved {
        Ok(report) => Report::new(&report),
        Err(error @ Error::NotSaved { .. }) => Err(not_saved(&refused, &error)),
        Err(error) => Err(raise_tensors(py, &error)),
    }
}

/// The exception for tensors that cannot be saved.
fn not_saved(refused: &Bound<'_, PyAny>, error: &Error) -> PyErr {
    let text = format!("Error while serializing: {error}");
    let raised = refused.call1((text,)).map_or_else(|raised| raised, PyErr::from_value);
    hint(refused.py(), &raised, &error.hint());
    raised
}

/// The bytes of a tensor.
///
/// The library copies them by instructions that take them as they are, and looks at none: if the program changes
/// them meanwhile, the file has old or new ones, as with safetensors.
///
/// # Safety
///
/// The memory exists as long as the result is used.
unsafe fn bytes_at((address, len): Place) -> &'static [u8] {
    if address == 0 || len == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(address), len) }
}

/// While a tensor is fetched the save is cancelled by not giving it.
fn called_off(error: Error, control: &Control) -> Error {
    match error {
        Error::Save(Transfer::Source { path, offset, length, .. })
            if control.cancel.is_cancelled() =>
        {
            let direction = Direction::Save;
            Error::Save(Transfer::Cancelled { path, direction, done: offset, length })
        }
        error => error,
    }
}

/// The end of the thread that saves: it asks the calling thread for tensors. That copies them from other devices,
/// because what a device does is in the order of a thread's calls.
struct Fetcher {
    asks: Sender<usize>,
    places: Receiver<Place>,
}

/// Both ends. The second one calls `fetch`.
fn fetching(fetch: Py<PyAny>) -> (Fetcher, Serve) {
    let (asks, asked) = mpsc::channel();
    let (give, places) = mpsc::channel();
    let asked = Mutex::new(asked);
    let serve = move |py: Python<'_>| {
        let next = asked.lock().unwrap_or_else(PoisonError::into_inner).try_recv();
        let Ok(index) = next else { return Ok(()) };
        let place: Place = fetch.call1(py, (index,))?.extract(py)?;
        // Nobody waits any more if the call was cancelled.
        let _ = give.send(place);
        Ok(())
    };
    (Fetcher { asks, places }, Arc::new(serve))
}

impl Fetcher {
    fn fetch(&self, control: &Control, index: usize) -> io::Result<Place> {
        let gone = || io::Error::other("the tensor was not fetched");
        self.asks.send(index).map_err(|_| gone())?;
        control.wake();
        loop {
            match self.places.recv_timeout(TICK) {
                Ok(place) => return Ok(place),
                // An exception in the calling thread cancels, too.
                Err(RecvTimeoutError::Timeout) if !control.cancel.is_cancelled() => {}
                Err(_) => return Err(gone()),
            }
        }
    }
}
