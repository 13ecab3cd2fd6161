// SPDX-License-Identifier: MIT OR Apache-2.0
//! `_Reader`: tensors of a model, one by one, each in memory of its own.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dmabuf_dio::CancelToken;
use dmabuf_dio_tensors::{Error, Model, Part, Reader as Shared, Shard, Split, Tensor, View};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyDict};

use crate::buffer::Buffer;
use crate::content::Content;
use crate::described::TensorInfo;
use crate::error::raise_tensors;
use crate::lock::{self, Lock};
use crate::mapped::Mapped;
use crate::model;
use crate::run::{self, Watch};
use crate::small;

/// Fewer bytes come from the page cache, read by one system call or mapped.
const WORTH_A_LOAD: u64 = Shared::WORTH_A_LOAD;
/// Bytes of a tensor that is worth a load by itself, requested out of the file's order: nothing can
/// be loaded ahead of it.
const WORTH_A_LOAD_ALONE: u64 = 16 << 20;
/// Less is never loaded after a row of requests: the kernel reads ahead of reads in a row.
const ALONE: u64 = 64 << 10;
/// Less is copied rather than mapped, which takes two system calls and a fault.
const WORTH_A_MAPPING: u64 = 64 << 10;

/// Less is copied out of the memory that it was loaded into with others.
const WORTH_A_BUFFER: u64 = 64 << 10;

/// Reads tensors of a model, and reads ahead: `dmabuf_dio_tensors::Reader`.
#[pyclass(module = "dmabuf_dio", name = "_Reader", frozen, weakref)]
#[derive(Debug)]
pub(crate) struct Reader {
    model: Arc<Model>,
    /// Those that it reads; `None`: all tensors.
    parts: Option<Vec<Part>>,
    window: Option<u64>,
    /// Tensors of more bytes, or more than the window, are not read ahead.
    most: Option<u64>,
    /// With the number of forks before it was made: a child has none of its threads.
    shared: Lock<(u32, Arc<Shared>)>,
    /// Bytes of the tensors that are announced.
    announced: Arc<AtomicU64>,
}

impl Reader {
    pub(crate) fn shared(&self) -> Arc<Shared> {
        let mut shared = self.shared.lock();
        let generation = lock::generation();
        if shared.0 != generation {
            let fresh = made(&self.model, self.parts.as_deref(), self.window, self.most);
            // It could be made before.
            let Ok(fresh) = fresh else { return Arc::clone(&shared.1) };
            let old = std::mem::replace(&mut *shared, (generation, Arc::new(fresh)));
            // Its lock may be held for ever.
            std::mem::forget(old);
        }
        Arc::clone(&shared.1)
    }

    fn tensor_of(&self, number: usize) -> PyResult<&Tensor> {
        self.model.tensors().get(number).ok_or_else(no_tensor)
    }

    /// Bytes of a tensor that need no load: at most `most`, or the page cache has them.
    fn at_hand<'py>(
        &self,
        py: Python<'py>,
        tensor: &Tensor,
        range: Range<u64>,
        (most, around, maps): (u64, bool, bool),
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let len = range.end - range.start;
        let waits = len < most;
        if maps
            && len >= WORTH_A_MAPPING
            && (waits || small::is_cached(&self.model, tensor, &range))
        {
            if let Some(mapped) = Mapped::new(py, &self.model, tensor, range.clone())? {
                return Ok(Some(mapped.into_any()));
            }
        }
        let read = small::read(py, &self.model, tensor, range, waits, around)?;
        Ok(read.map(Bound::into_any))
    }

    /// The memory of a tensor, which may have to be waited for.
    fn loaded(&self, py: Python<'_>, number: usize) -> PyResult<Option<dmabuf_dio::Buffer>> {
        let ready = self.shared().get_ready(number).map_err(|error| raise_tensors(py, &error))?;
        match ready {
            Some(ready) => Ok(ready),
            None => self.load(py, move |shared, cancel| shared.get(number, cancel)),
        }
    }

    /// Makes a call that blocks.
    fn load(
        &self,
        py: Python<'_>,
        load: impl FnOnce(&Shared, &CancelToken) -> Result<Option<dmabuf_dio::Buffer>, Error>
        + Send
        + 'static,
    ) -> PyResult<Option<dmabuf_dio::Buffer>> {
        let shared = self.shared();
        let loaded =
            run::call(py, &Watch::default(), move |control| load(&shared, &control.cancel));
        loaded?.map_err(|error| raise_tensors(py, &error))
    }
}

#[pymethods]
impl Reader {
    /// `window`: the bytes that may be in memory before they are requested; `None`: chosen. `shard`: rank and
    /// world. `cuts`: which parts of which tensors are read, by default all of all. `most`: tensors of more
    /// bytes, or of more than the window, are not read ahead, as they are not requested as a whole.
    #[new]
    #[pyo3(signature = (model, window = None, shard = None, cuts = None, most = None))]
    fn new(
        py: Python<'_>,
        model: &model::Model,
        window: Option<u64>,
        shard: Option<(u32, u32)>,
        cuts: Option<Vec<(usize, Option<Cut>)>>,
        most: Option<u64>,
    ) -> PyResult<Self> {
        let model = Arc::clone(model.shared());
        let made = || {
            let (rank, world) = shard.unwrap_or((0, 1));
            let shard = Shard::new(rank, world)?;
            let part = |(number, cut)| part(shard, &model, number, cut);
            let parts = cuts.map(|cuts| cuts.into_iter().map(part).collect()).transpose()?;
            Ok((made(&model, parts.as_deref(), window, most)?, parts))
        };
        let (shared, parts) = made().map_err(|error| raise_tensors(py, &error))?;
        let shared = Lock::new((lock::generation(), Arc::new(shared)));
        Ok(Self { model, parts, window, most, shared, announced: Arc::default() })
    }

    /// A tensor by its place among `keys()`, and its bytes, which nothing else refers to: what the
    /// page cache has, or is not worth a load, comes from there. `maps`: by a mapping of the file
    /// where that copies less.
    fn get<'py>(
        &self,
        py: Python<'py>,
        number: usize,
        maps: bool,
    ) -> PyResult<(Py<TensorInfo>, Bound<'py, PyAny>)> {
        let (tensor, shared) = (self.tensor_of(number)?, self.shared());
        let info = TensorInfo::of(py, tensor)?;
        if !shared.has(number) {
            let most = match shared.follows(number) {
                // With others that were announced, whatever the order of requests.
                _ if self.announced.load(Ordering::Relaxed) >= WORTH_A_LOAD => ALONE,
                None => WORTH_A_LOAD_ALONE,
                Some(row) if row < WORTH_A_LOAD => WORTH_A_LOAD,
                Some(_) => ALONE,
            };
            let how = (most, most == WORTH_A_LOAD_ALONE, maps);
            if let Some(found) = self.at_hand(py, tensor, 0..tensor.len(), how)? {
                shared.passed(number);
                return Ok((info, found));
            }
        }
        drop(shared);
        Ok((info, memory(py, self.loaded(py, number)?)?))
    }

    /// The same, by a load.
    fn take<'py>(
        &self,
        py: Python<'py>,
        number: usize,
    ) -> PyResult<(Py<TensorInfo>, Bound<'py, PyAny>)> {
        let loaded = self.loaded(py, number)?;
        Ok((TensorInfo::of(py, self.tensor_of(number)?)?, memory(py, loaded)?))
    }

    /// A tensor that was loaded into memory of its own.
    fn tensor(&self, py: Python<'_>, number: usize) -> PyResult<Py<crate::tensor::Tensor>> {
        let buffer = match self.loaded(py, number)? {
            Some(loaded) => Some(Py::new(py, Buffer::new(Content::loaded(loaded, true), None))?),
            None => None,
        };
        let shared = self.shared();
        let described = shared.tensors().get(number).ok_or_else(no_tensor)?;
        let mut view = View::from(described);
        view.buffer = buffer.as_ref().map(|_| 0);
        crate::tensor::Tensor::new(py, Arc::new(view), buffer)
    }

    /// Elements of a tensor, from the first to the last in each dimension, in memory that nothing else refers
    /// to; and whether that has them alone, or all of the rows that they are in.
    fn part<'py>(
        &self,
        py: Python<'py>,
        number: usize,
        elements: Vec<(u64, u64)>,
        maps: bool,
    ) -> PyResult<(Bound<'py, PyAny>, bool)> {
        let (tensor, raise) = (self.tensor_of(number)?, |error: Error| raise_tensors(py, &error));
        let (mut part, mut rows) = (Part::whole(number), Part::whole(number));
        for (dim, (start, end)) in elements.into_iter().enumerate() {
            if tensor.shape.get(dim).is_none_or(|size| (start, end) != (0, *size)) {
                part = part.take(dim, start..end);
                if dim == 0 {
                    rows = part.clone();
                }
            }
        }
        let exact = part.describe(&self.model).map_err(raise)?;
        let around = rows.describe(&self.model).map_err(raise)?;
        let is_sparse = around.len() >= WORTH_A_LOAD && exact.len() <= around.len() / 2;
        let (alone, source) = if exact.is_contiguous() { (true, &exact) } else { (false, &around) };
        let start = tensor.range.start;
        let range = source.range.start - start..source.range.end - start;
        let most = if is_sparse && !alone { 0 } else { WORTH_A_LOAD };
        if let Some(found) = self.at_hand(py, tensor, range, (most, true, maps))? {
            return Ok((found, alone));
        }
        let alone = alone || is_sparse;
        let wanted = if alone { part } else { rows };
        let load = move |shared: &Shared, cancel: &CancelToken| shared.part(&wanted, cancel);
        Ok((memory(py, self.load(py, load)?)?, alone))
    }

    /// Announces tensors, as long as the result exists.
    fn want(&self, numbers: Vec<usize>) -> Wanted {
        let shared = self.shared();
        for &number in &numbers {
            shared.want(number);
        }
        let tensors = numbers.iter().filter_map(|&number| shared.tensors().get(number));
        let bytes = tensors.map(Tensor::len).sum();
        self.announced.fetch_add(bytes, Ordering::Relaxed);
        let announced = Arc::clone(&self.announced);
        Wanted { generation: lock::generation(), shared: Some(shared), numbers, bytes, announced }
    }

    /// Tensors by their places, in groups of one file each and at most `most` bytes, or of one tensor; and the bytes of
    /// all.
    fn batches(&self, numbers: Vec<usize>, most: u64) -> PyResult<(Vec<Vec<usize>>, u64)> {
        let (shared, mut batches) = (self.shared(), Vec::<Vec<usize>>::new());
        let (mut file, mut bytes, mut total) = (0, 0, 0);
        for number in numbers {
            let tensor = shared.tensors().get(number).ok_or_else(no_tensor)?;
            match batches.last_mut() {
                Some(batch) if tensor.file == file && bytes + tensor.len() <= most => {
                    batch.push(number);
                }
                _ => {
                    batches.push(vec![number]);
                    (file, bytes) = (tensor.file, 0);
                }
            }
            bytes += tensor.len();
            total += tensor.len();
        }
        Ok((batches, total))
    }

    /// What was read so far, in bytes.
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let report = self.shared().report();
        let dict = PyDict::new(py);
        for (name, value) in [
            ("requested", report.requested),
            ("read", report.read),
            ("dropped", report.dropped),
            ("reads", report.reads),
            ("window", report.window),
        ] {
            dict.set_item(name, value)?;
        }
        Ok(dict)
    }
}

/// Tensors that will be requested.
#[pyclass(module = "dmabuf_dio", name = "_Wanted", frozen)]
#[derive(Debug)]
pub(crate) struct Wanted {
    generation: u32,
    /// Taken when the object goes.
    shared: Option<Arc<Shared>>,
    numbers: Vec<usize>,
    bytes: u64,
    announced: Arc<AtomicU64>,
}

impl Drop for Wanted {
    fn drop(&mut self) {
        self.announced.fetch_sub(self.bytes, Ordering::Relaxed);
        let Some(shared) = self.shared.take() else { return };
        if self.generation == lock::generation() {
            for &number in &self.numbers {
                shared.forget(number);
            }
        } else {
            std::mem::forget(shared);
        }
    }
}

/// What of a tensor is read: all, or a part of the elements in a dimension. That is the rank's share of sections
/// with so many elements (of one, if there are none), or these ranges. Or elements, from the first to the last in
/// each dimension.
#[derive(FromPyObject)]
enum Cut {
    Along(usize, Vec<u64>, Option<Vec<(u64, u64)>>),
    Elements(Vec<(u64, u64)>),
}

fn part(shard: Shard, model: &Model, number: usize, cut: Option<Cut>) -> Result<Part, Error> {
    let whole = Part::whole(number);
    match cut {
        None => Ok(whole),
        Some(Cut::Along(dim, sections, None)) => {
            shard.part(model, number, &Split::along(dim).sections(sections))
        }
        Some(Cut::Along(dim, _, Some(ranges))) => {
            Ok(ranges.into_iter().fold(whole, |part, (start, end)| part.take(dim, start..end)))
        }
        Some(Cut::Elements(elements)) => {
            let take = |part: Part, (dim, (start, end))| part.take(dim, start..end);
            Ok(elements.into_iter().enumerate().fold(whole, take))
        }
    }
}

fn made(
    model: &Arc<Model>,
    parts: Option<&[Part]>,
    window: Option<u64>,
    most: Option<u64>,
) -> Result<Shared, Error> {
    let (model, options) = (Arc::clone(model), dmabuf_dio::Options::default());
    let reader = match parts {
        None => Shared::with(model, window, &options),
        Some(parts) => Shared::of_parts(model, parts, window, &options)?,
    };
    if let Some(most) = most {
        let most = most.min(reader.report().window.max(WORTH_A_LOAD));
        for (number, tensor) in reader.tensors().iter().enumerate() {
            // Packed types are requested as a whole.
            if tensor.len() > most && tensor.dtype.block().elements == 1 {
                reader.avoid(number);
            }
        }
    }
    Ok(reader)
}

fn no_tensor() -> PyErr {
    PyIndexError::new_err("there is no such tensor")
}

/// Memory that was loaded. Few bytes are copied: an array of them takes less than a buffer and its
/// views.
fn memory(py: Python<'_>, loaded: Option<dmabuf_dio::Buffer>) -> PyResult<Bound<'_, PyAny>> {
    let Some(buffer) = loaded else { return Ok(PyByteArray::new(py, &[]).into_any()) };
    match buffer.bytes() {
        Some(bytes) if buffer.len() < WORTH_A_BUFFER => Ok(PyByteArray::new(py, bytes).into_any()),
        _ => {
            let buffer = Buffer::new(Content::loaded(buffer, true), None);
            Ok(Bound::new(py, buffer)?.into_any())
        }
    }
}
