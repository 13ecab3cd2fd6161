// SPDX-License-Identifier: MIT OR Apache-2.0
//! `gather()` and `Gathering`: many small pieces of a file at once.

use std::path::PathBuf;
use std::sync::mpsc::{self, Sender};

use dmabuf_dio::gather::{self as library, Found, GatherReport, Gatherer, Piece, PieceError};
use dmabuf_dio::{Error, Kind, Options};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyIndexError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyInt, PyMemoryView, PySlice, PyTuple};

use crate::buffer::Buffer;
use crate::content::Content;
use crate::error::{raise, raise_piece};
use crate::lock::Lock;
use crate::options::{Given, Keywords};
use crate::report::{as_dict, json};
use crate::run::{self, Call, Watch};
use crate::source::Source;

/// The alignment of the spare bytes: the block size of most disks. The library aligns further.
const SPARE: u64 = 4096;

/// Numbers: an array of 64-bit integers, or any sequence.
pub(crate) struct Numbers(Vec<u64>);

impl<'py> FromPyObject<'_, 'py> for Numbers {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let py = object.py();
        if let Ok(array) = PyBuffer::<u64>::get(&object) {
            return Ok(Self(array.to_vec(py)?));
        }
        if PyBuffer::<u8>::get(&object).is_ok() {
            let text = "an array of 64-bit integers is needed, not of bytes";
            return Err(PyTypeError::new_err(text));
        }
        let array = PyBuffer::<i64>::get(&object);
        let signed = array.map_or_else(|_| object.extract(), |array| array.to_vec(py))?;
        let checked: Result<_, _> = signed.into_iter().map(u64::try_from).collect();
        let negative = |_| PyValueError::new_err("offsets and lengths must not be negative");
        checked.map(Self).map_err(negative)
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
    /// The buffer that the pieces are in.
    #[pyo3(get)]
    buffer: Py<Buffer>,
    path: Option<PathBuf>,
    pieces: Vec<Result<Found, PieceError>>,
    report: String,
}

/// The result of the reading thread.
type Outcome = (Vec<Result<Found, PieceError>>, GatherReport);

fn read(gathering: &mut library::Gathering, pieces: &[Piece]) -> Result<Outcome, Error> {
    let gathered = gathering.read(pieces)?;
    Ok((gathered.pieces().collect(), gathered.report()))
}

impl Gathered {
    fn new(buffer: Py<Buffer>, path: Option<PathBuf>, outcome: Outcome) -> PyResult<Self> {
        let (pieces, report) = outcome;
        Ok(Self { buffer, path, pieces, report: json(&report)? })
    }

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
    /// The start of each piece in the buffer, in bytes; -1 for a failed piece.
    #[getter]
    fn starts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let own = self.buffer.get().start();
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
        let error = |number| Some((number, self.piece(py, number).err()?.into_value(py)));
        let failed = (0..self.pieces.len()).filter_map(error);
        failed.map(|(number, error)| (number, error.into_bound(py).into_any())).collect()
    }

    /// The actions and the cost of the call.
    #[getter]
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        as_dict(py, &self.report)
    }

    fn __len__(&self) -> usize {
        self.pieces.len()
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
        let first = (found.start - buffer.get().start()) as isize;
        let range = PySlice::new(py, first, first + found.len as isize, 1);
        PyMemoryView::from(buffer.as_any())?.get_item(range)
    }
}

/// How to gather.
struct Setup {
    options: Options,
    polled: bool,
}

impl Setup {
    fn of(given: &Given<'_>) -> PyResult<Self> {
        Ok(Self { options: given.gather()?, polled: given.take_or("polled", false)? })
    }

    fn gatherer<'s>(&self, source: &'s Source) -> Gatherer<'s> {
        let Options { backend, direct, queue_depth, .. } = self.options;
        let gatherer = source.gatherer().backend(backend).direct(direct).polled(self.polled);
        match queue_depth {
            Some(requests) => gatherer.queue_depth(requests),
            None => gatherer,
        }
    }
}

/// Reads pieces of a file into a new buffer, one after the other. Options: `types.GatherOptions`.
#[pyfunction]
#[pyo3(signature = (path, offsets, lengths, **options))]
pub(crate) fn gather(
    py: Python<'_>,
    path: Source,
    offsets: Numbers,
    lengths: Lengths,
    options: Option<Keywords<'_>>,
) -> PyResult<Gathered> {
    let given = Given::new("gather", options);
    let (kind, setup, watch) = (given.made_kind(Kind::Any)?, Setup::of(&given)?, given.watch()?);
    given.end()?;
    let lengths = lengths.of(offsets.0.len())?;
    let too_long = || PyValueError::new_err("the pieces are too long");
    let mut pieces = Vec::with_capacity(lengths.len());
    let mut end = 0_u64;
    for (&offset, &len) in offsets.0.iter().zip(&lengths) {
        pieces.push(Piece { offset, buf_offset: end, len });
        end = end.checked_add(len).ok_or_else(too_long)?;
    }
    let spare = end.checked_next_multiple_of(SPARE).ok_or_else(too_long)?;
    let path = path.found(py)?;
    let name = path.name();
    let (buf, total, outcome) = run::transfer(py, &watch, move |control| {
        let gatherer = setup.gatherer(&path).cancel(control.cancel.clone());
        let gatherer = gatherer.progress(control.told());
        let total = spare.saturating_add(gatherer.room(&pieces)?).max(1);
        let buf = dmabuf_dio::Buffer::alloc_kind(kind, "system", total)?;
        let mut gathering = gatherer.spare(spare..total.max(spare)).open(&buf)?;
        read(&mut gathering, &pieces).map(|outcome| (buf, total, outcome))
    })?;
    let buffer = Buffer::new(Content::part(buf, 0, total, false), None);
    Gathered::new(Py::new(py, buffer)?, name, outcome)
}

type Job = Box<dyn FnOnce(&mut library::Gathering) + Send>;

/// A file and a buffer, set up once for many calls. Options: `spare`, and those of gather.
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
    /// The backend in use.
    #[pyo3(get)]
    backend: &'static str,
    /// The alignment that a piece needs to be read to its place, in bytes: in the file and in the
    /// buffer.
    #[pyo3(get)]
    alignment: (u64, u64),
}

impl Gathering {
    /// The pieces of a call, in the memory of the buffer.
    fn pieces(
        content: &Content,
        offsets: &[u64],
        places: &[u64],
        lengths: &[u64],
    ) -> PyResult<Vec<Piece>> {
        let each = offsets.iter().zip(places).zip(lengths).enumerate();
        let piece = |(number, ((&offset, &place), &len))| {
            if content.has(place, len) {
                return Ok(Piece { offset, buf_offset: content.start() + place, len });
            }
            let have = content.len();
            Err(PyValueError::new_err(format!(
                "piece {number}: the range of {len} bytes at {place} exceeds the buffer of {have} bytes"
            )))
        };
        each.map(piece).collect()
    }
}

#[pymethods]
impl Gathering {
    #[new]
    #[pyo3(signature = (path, buffer, **options))]
    fn new(
        py: Python<'_>,
        path: Source,
        buffer: Bound<'_, Buffer>,
        options: Option<Keywords<'_>>,
    ) -> PyResult<Self> {
        let given = Given::new("Gathering", options);
        let (setup, spare) = (Setup::of(&given)?, given.take_or("spare", (0, 0))?);
        given.end()?;
        let path = path.found(py)?;
        let name = path.name();
        let transfer = buffer.get().begin_write(py)?;
        let (start, length) = spare;
        if !transfer.content().has(start, length) {
            return Err(PyValueError::new_err("the spare bytes exceed the buffer"));
        }
        let (jobs, todo) = mpsc::channel::<Job>();
        let cancel = dmabuf_dio::CancelToken::new();
        let token = cancel.clone();
        let (call, set_up) = Call::new(move |_| {
            let content = transfer.content();
            let first = content.start() + start;
            let gatherer = setup.gatherer(&path).cancel(token).spare(first..first + length);
            let gathering = gatherer.open(content.buf())?;
            let facts = (gathering.backend().name(), gathering.alignment());
            Ok((gathering, facts))
        });
        let (hand_over, handed) = mpsc::channel::<library::Gathering>();
        run::start(move || {
            set_up();
            // The ring belongs to the thread that uses it first.
            if let Ok(mut gathering) = handed.recv() {
                for job in todo {
                    job(&mut gathering);
                }
            }
        })?;
        let opened = call.wait(py, &Watch::default())?;
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

    /// Reads pieces to places in the buffer. No view of the buffer may exist meanwhile.
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
        let transfer = self.buffer.get().begin_write(py)?;
        let pieces = Self::pieces(transfer.content(), &offsets.0, &places.0, &lengths)?;
        let (call, finish) = Call::handed(self.cancel.clone());
        let job: Job = Box::new(move |gathering| {
            let outcome = read(gathering, &pieces);
            // Views may begin again once the caller knows.
            drop(transfer);
            finish(outcome);
        });
        let sent = self.jobs.lock().as_ref().map(|jobs| jobs.send(job));
        sent.ok_or_else(|| PyValueError::new_err("the Gathering is closed"))?
            .map_err(|_| PyRuntimeError::new_err("the Gathering's thread is gone"))?;
        let outcome = call.wait(py, &Watch::default());
        if self.cancel.is_cancelled() {
            self.close();
        }
        let outcome = outcome?.map_err(|error| raise(py, &error))?;
        Gathered::new(self.buffer.clone_ref(py), self.path.clone(), outcome)
    }

    /// Frees the ring.
    fn close(&self) {
        self.jobs.lock().take();
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: Bound<'_, PyTuple>) {
        self.close();
    }
}
