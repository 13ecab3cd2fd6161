// SPDX-License-Identifier: MIT OR Apache-2.0
//! `_Reader`: tensors of a model, one by one, each in memory of its own.

use std::ops::Range;
use std::sync::Arc;

use dmabuf_dio::CancelToken;
use dmabuf_dio_tensors::{Error, Model, Reader as Shared, Tensor, View};
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
    window: Option<u64>,
    /// With the number of forks before it was made: a child has none of its threads.
    shared: Lock<(u32, Arc<Shared>)>,
}

impl Reader {
    fn shared(&self) -> Arc<Shared> {
        let mut shared = self.shared.lock();
        let generation = lock::generation();
        if shared.0 != generation {
            let fresh = Arc::new(made(&self.model, self.window));
            let old = std::mem::replace(&mut *shared, (generation, fresh));
            // Its lock may be held for ever.
            std::mem::forget(old);
        }
        Arc::clone(&shared.1)
    }

    fn tensor_of(&self, number: usize) -> PyResult<&Tensor> {
        let found = self.model.tensors().get(number);
        found.ok_or_else(|| PyIndexError::new_err("there is no such tensor"))
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
    /// `window`: the bytes that may be in memory before they are requested; `None`: chosen.
    #[new]
    #[pyo3(signature = (model, window = None))]
    fn new(model: &model::Model, window: Option<u64>) -> Self {
        let model = Arc::clone(model.shared());
        let shared = Arc::new(made(&model, window));
        Self { shared: Lock::new((lock::generation(), shared)), model, window }
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
        let mut view = View::from(self.tensor_of(number)?);
        view.buffer = buffer.as_ref().map(|_| 0);
        crate::tensor::Tensor::new(py, Arc::new(view), buffer)
    }

    /// Bytes of a tensor, from `start` to `end`, which nothing else refers to.
    fn part<'py>(
        &self,
        py: Python<'py>,
        number: usize,
        start: u64,
        end: u64,
        maps: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let tensor = self.tensor_of(number)?;
        if start > end || end > tensor.len() {
            return Err(small::beyond());
        }
        if let Some(found) = self.at_hand(py, tensor, start..end, (WORTH_A_LOAD, true, maps))? {
            return Ok(found);
        }
        let part =
            move |shared: &Shared, cancel: &CancelToken| shared.part(number, start..end, cancel);
        memory(py, self.load(py, part)?)
    }

    /// Announces tensors, as long as the result exists.
    fn want(&self, numbers: Vec<usize>) -> Wanted {
        let shared = self.shared();
        for &number in &numbers {
            shared.want(number);
        }
        Wanted { generation: lock::generation(), shared: Some(shared), numbers }
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
}

impl Drop for Wanted {
    fn drop(&mut self) {
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

fn made(model: &Arc<Model>, window: Option<u64>) -> Shared {
    Shared::with(Arc::clone(model), window, &dmabuf_dio::Options::default())
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
