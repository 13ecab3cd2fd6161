// SPDX-License-Identifier: MIT OR Apache-2.0
//! `gather()` and `Gathering`: many small pieces of a file at once.

use std::path::PathBuf;
use std::sync::mpsc::{self, Sender};
use std::thread;

use dmabuf_dio::Error;
use dmabuf_dio::gather::{self as library, Found, Piece, PieceError};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyIndexError, PyOSError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyInt, PyMemoryView, PySlice};

use crate::buffer::Buffer;
use crate::cancel::CancelToken;
use crate::content::Content;
use crate::error::{raise, raise_piece};
use crate::load::fits;
use crate::lock::Lock;
use crate::report::{as_dict, json};
use crate::run::{self, Call, Watch};
use crate::source::Source;

/// Where the spare bytes begin: at a multiple of the block size of most disks. The library aligns further.
const SPARE: u64 = 4096;

/// Numbers: an array of 64-bit integers, or any sequence.
pub(crate) struct Numbers(Vec<u64>);

impl<'py> FromPyObject<'_, 'py> for Numbers {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let py = object.py();
        let signed = if let Ok(array) = PyBuffer::<i64>::get(&object) {
            array.to_vec(py)?
        } else if let Ok(array) = PyBuffer::<u64>::get(&object) {
            return Ok(Self(array.to_vec(py)?));
        } else if PyBuffer::<u8>::get(&object).is_ok() {
            return Err(PyTypeError::new_err(
                "an array of 64-bit integers is needed, not of bytes",
            ));
        } else {
            object.extract()?
        };
        let checked = signed.into_iter().map(u64::try_from).collect::<Result<_, _>>();
        Ok(Self(
            checked
                .map_err(|_| PyValueError::new_err("offsets and lengths must not be negative"))?,
        ))
    }
}

/// One length for all pieces, or one for each.
pub(crate) enum Lengths {
    Same(u64),
    Each(Numbers),
}

impl<'py> FromPyObject<'_, 'py> for Lengths {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if object.is_instance_of::<PyInt>() {
            let length = object.extract::<u64>();
            return length
                .map(Self::Same)
                .map_err(|_| PyValueError::new_err("a length must be from 0 to 2**64 - 1"));
        }
        object.extract().map(Self::Each)
    }
}

impl Lengths {
    fn of(&self, pieces: usize) -> PyResult<Vec<u64>> {
        match self {
            Self::Same(length) => Ok(vec![*length; pieces]),
            Self::Each(Numbers(lengths)) if lengths.len() == pieces => Ok(lengths.clone()),
            Self::Each(Numbers(lengths)) => Err(PyValueError::new_err(format!(
                "{pieces} offsets and {} lengths",
                lengths.len()
            ))),
        }
    }
}

/// The pieces of a call and where they are.
#[pyclass(module = "dmabuf_dio", frozen)]
#[derive(Debug)]
pub(crate) struct Gathered {
    buffer: Py<Buffer>,
    path: Option<PathBuf>,
    pieces: Vec<Result<Found, PieceError>>,
    report: String,
}

/// What the reading thread returns.
struct Outcome {
    pieces: Vec<Result<Found, PieceError>>,
    report: dmabuf_dio::gather::GatherReport,
}

impl Outcome {
    fn read(gathering: &mut library::Gathering, pieces: &[Piece]) -> Result<Self, Error> {
        let gathered = gathering.read(pieces)?;
        Ok(Self { pieces: gathered.pieces().collect(), report: gathered.report() })
    }

    fn finish(self, buffer: Py<Buffer>, path: Option<PathBuf>) -> PyResult<Gathered> {
        Ok(Gathered { buffer, path, pieces: self.pieces, report: json(&self.report)? })
    }
}

impl Gathered {
    fn piece(&self, py: Python<'_>, number: usize) -> PyResult<Found> {
        self.pieces[number].map_err(|error| raise_piece(py, number, error, self.path.as_deref()))
    }

    /// 64-bit integers as a read-only array that needs no library.
    fn numbers<'py>(
        &self,
        py: Python<'py>,
        number: impl Fn(&Found) -> u64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut bytes = Vec::with_capacity(self.pieces.len() * 8);
        for piece in &self.pieces {
            let value = piece.as_ref().map_or(-1, |found| number(found) as i64);
            bytes.extend_from_slice(&value.to_ne_bytes());
        }
        PyMemoryView::from(&PyBytes::new(py, &bytes))?.call_method1("cast", ("q",))
    }
}

#[pymethods]
impl Gathered {
    /// The buffer that the pieces are in.
    #[getter]
    fn buffer(&self, py: Python<'_>) -> Py<Buffer> {
        self.buffer.clone_ref(py)
    }

    /// Where each piece starts in the buffer, in bytes; -1 for one that failed.
    #[getter]
    fn starts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let own = self.buffer.bind(py).get().content()?.start();
        self.numbers(py, |found| found.start - own)
    }

    /// The length of each piece, in bytes; -1 for one that failed.
    #[getter]
    fn lengths<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.numbers(py, |found| found.len)
    }

    /// The pieces that failed, and why.
    #[getter]
    fn errors<'py>(&self, py: Python<'py>) -> Vec<(usize, Bound<'py, PyAny>)> {
        let failed = (0..self.pieces.len()).filter_map(|number| {
            let error = self.piece(py, number).err()?;
            Some((number, error.into_value(py).into_bound(py).into_any()))
        });
        failed.collect()
    }

    /// What the call did and what it cost.
    #[getter]
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        as_dict(py, &self.report)
    }

    fn __len__(&self) -> usize {
        self.pieces.len()
    }

    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: the object is a sequence: it has a length and items by number.
        unsafe {
            let iterator = pyo3::ffi::PySeqIter_New(slf.as_ptr());
            Bound::from_owned_ptr_or_err(slf.py(), iterator)
        }
    }

    /// A piece, as a view of the buffer. Raises the error that prevented reading it.
    fn __getitem__<'py>(&self, py: Python<'py>, number: isize) -> PyResult<Bound<'py, PyAny>> {
        let count = self.pieces.len() as isize;
        let number = if number < 0 { number + count } else { number };
        if !(0..count).contains(&number) {
            return Err(PyIndexError::new_err("there is no such piece"));
        }
        let found = self.piece(py, number as usize)?;
        let buffer = self.buffer.bind(py);
        let first = (found.start - buffer.get().content()?.start()) as isize;
        let range = PySlice::new(py, first, first + found.len as isize, 1);
        PyMemoryView::from(buffer.as_any())?.get_item(range)
    }
}

/// Reads pieces of a file into a new buffer, one after the other.
#[pyfunction]
#[pyo3(signature = (
    path, offsets, lengths, *, kind = "any", queue_depth = None, polled = false, backend = None,
    direct = true, progress = None, cancel = None,
))]
pub(crate) fn gather(
    py: Python<'_>,
    path: Source,
    offsets: Numbers,
    lengths: Lengths,
    kind: &str,
    queue_depth: Option<u32>,
    polled: bool,
    backend: Option<&str>,
    direct: bool,
    progress: Option<Bound<'_, PyAny>>,
    cancel: Option<PyRef<'_, CancelToken>>,
) -> PyResult<Gathered> {
    let backend = crate::load::backend(backend)?;
    let kind = crate::buffer::made_kind(kind)?;
    let lengths = lengths.of(offsets.0.len())?;
    let mut pieces = Vec::with_capacity(lengths.len());
    let mut end = 0_u64;
    for (&offset, &len) in offsets.0.iter().zip(&lengths) {
        pieces.push(Piece { offset, buf_offset: end, len });
        end =
            end.checked_add(len).ok_or_else(|| PyValueError::new_err("the pieces are too long"))?;
    }
    let name = path.name();
    let watch = Watch::new(progress, cancel);
    let read = run::call(py, &watch, move |control| {
        let told = control.clone();
        let mut gatherer = path
            .gatherer()
            .backend(backend)
            .direct(direct)
            .polled(polled)
            .cancel(control.cancel.clone())
            .progress(move |progress| told.report(progress));
        if let Some(requests) = queue_depth {
            gatherer = gatherer.queue_depth(requests);
        }
        let room = gatherer.room(&pieces)?;
        let spare = end.next_multiple_of(SPARE)..end.next_multiple_of(SPARE) + room;
        let total = spare.end.max(1);
        let buf = dmabuf_dio::Buffer::alloc_kind(kind, "system", total)?;
        let mut gathering = gatherer.spare(spare).open(&buf)?;
        Outcome::read(&mut gathering, &pieces).map(|outcome| (buf, total, outcome))
    })?;
    let (buf, total, outcome) = read.map_err(|error| raise(py, &error))?;
    let buffer = Buffer::new(Content::part(buf, 0, total, false), None);
    outcome.finish(Py::new(py, buffer)?, name)
}

type Job = Box<dyn FnOnce(&mut library::Gathering) + Send>;

/// A file and a buffer, set up once for many calls.
#[pyclass(module = "dmabuf_dio", frozen)]
#[derive(Debug)]
pub(crate) struct Gathering {
    buffer: Py<Buffer>,
    path: Option<PathBuf>,
    /// Sends jobs to the thread that owns the ring; `None` once closed.
    jobs: Lock<Option<Sender<Job>>>,
    /// Cancelled by an exception in a wait, which ends the use of the ring.
    cancel: dmabuf_dio::CancelToken,
    /// A child of fork(2) has no such thread.
    process: u32,
    backend: &'static str,
    alignment: (u64, u64),
}

#[pymethods]
impl Gathering {
    #[new]
    #[pyo3(signature = (
        path, buffer, *, spare = None, queue_depth = None, polled = false, backend = None,
        direct = true,
    ))]
    fn new(
        py: Python<'_>,
        path: Source,
        buffer: Bound<'_, Buffer>,
        spare: Option<(u64, u64)>,
        queue_depth: Option<u32>,
        polled: bool,
        backend: Option<&str>,
        direct: bool,
    ) -> PyResult<Self> {
        let backend = crate::load::backend(backend)?;
        let name = path.name();
        let transfer = buffer.get().begin_write(py)?;
        let (start, length) = spare.unwrap_or((0, 0));
        if !fits(start, length, transfer.content().len()) {
            return Err(PyValueError::new_err("the spare bytes exceed the buffer"));
        }
        let (jobs, todo) = mpsc::channel::<Job>();
        let cancel = dmabuf_dio::CancelToken::new();
        let token = cancel.clone();
        let (call, set_up) = Call::new(move |_| {
            let content = transfer.content();
            let first = content.start() + start;
            let mut gatherer = path
                .gatherer()
                .backend(backend)
                .direct(direct)
                .polled(polled)
                .cancel(token)
                .spare(first..first + length);
            if let Some(requests) = queue_depth {
                gatherer = gatherer.queue_depth(requests);
            }
            let gathering = gatherer.open(content.buf())?;
            let facts = (gathering.backend().name(), gathering.alignment());
            Ok((gathering, facts))
        });
        let (hand_over, handed) = mpsc::channel::<library::Gathering>();
        let thread = thread::Builder::new().name("dmabuf-dio".into());
        let spawned = thread.spawn(move || {
            set_up();
            // The ring belongs to the thread that uses it first.
            if let Ok(mut gathering) = handed.recv() {
                for job in todo {
                    job(&mut gathering);
                }
            }
        });
        spawned.map_err(|error| {
            PyOSError::new_err((error.raw_os_error().unwrap_or(libc::EAGAIN), "no thread"))
        })?;
        let opened = call.wait(py, &Watch { progress: None, cancel: None })?;
        let (gathering, (backend, alignment)) = opened.map_err(|error| raise(py, &error))?;
        // The thread waits for it.
        let _ = hand_over.send(gathering);
        Ok(Self {
            buffer: buffer.unbind(),
            path: name,
            jobs: Lock::new(Some(jobs)),
            cancel,
            process: std::process::id(),
            backend,
            alignment,
        })
    }

    /// The backend in use.
    #[getter]
    fn backend(&self) -> &'static str {
        self.backend
    }

    /// The alignment that a piece needs to be read to its place, in bytes: in the file and in the
    /// buffer.
    #[getter]
    fn alignment(&self) -> (u64, u64) {
        self.alignment
    }

    /// Reads pieces to places in the buffer, of which no view may exist meanwhile.
    fn read(
        &self,
        py: Python<'_>,
        offsets: Numbers,
        places: Numbers,
        lengths: Lengths,
    ) -> PyResult<Gathered> {
        if std::process::id() != self.process {
            return Err(PyRuntimeError::new_err(
                "a Gathering belongs to the process that created it: create another after fork()",
            ));
        }
        let lengths = lengths.of(offsets.0.len())?;
        if places.0.len() != lengths.len() {
            return Err(PyValueError::new_err(format!(
                "{} offsets and {} places",
                lengths.len(),
                places.0.len()
            )));
        }
        let transfer = self.buffer.bind(py).get().begin_write(py)?;
        let content = transfer.content();
        let (own, len) = (content.start(), content.len());
        let mut pieces = Vec::with_capacity(lengths.len());
        for (number, ((&offset, &place), &piece)) in
            offsets.0.iter().zip(&places.0).zip(&lengths).enumerate()
        {
            if !fits(place, piece, len) {
                return Err(PyValueError::new_err(format!(
                    "piece {number}: the range of {piece} bytes at {place} exceeds the buffer of {len} bytes"
                )));
            }
            pieces.push(Piece { offset, buf_offset: own + place, len: piece });
        }
        let (call, finish) = Call::handed(self.cancel.clone());
        let job: Job = Box::new(move |gathering| {
            let outcome = Outcome::read(gathering, &pieces);
            // Views may begin again once the caller knows.
            drop(transfer);
            finish(outcome);
        });
        {
            let jobs = self.jobs.lock();
            let jobs =
                jobs.as_ref().ok_or_else(|| PyValueError::new_err("the Gathering is closed"))?;
            jobs.send(job)
                .map_err(|_| PyRuntimeError::new_err("the Gathering's thread is gone"))?;
        }
        let outcome = call.wait(py, &Watch { progress: None, cancel: None });
        if self.cancel.is_cancelled() {
            self.close();
        }
        let outcome = outcome?.map_err(|error| raise(py, &error))?;
        outcome.finish(self.buffer.clone_ref(py), self.path.clone())
    }

    /// Frees the ring.
    fn close(&self) {
        self.jobs.lock().take();
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(
        &self,
        _kind: Bound<'_, PyAny>,
        _exception: Bound<'_, PyAny>,
        _traceback: Bound<'_, PyAny>,
    ) {
        self.close();
    }
}
