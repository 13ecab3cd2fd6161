// SPDX-License-Identifier: MIT OR Apache-2.0
//! `Model` and `Tensors`: tensors of safetensors and GGUF files.

use std::collections::HashMap;
use std::ffi::c_int;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use dmabuf_dio::{Kind, Options};
use dmabuf_dio_tensors::{Array, Error, Metadata, Value, View};
use pyo3::exceptions::{PyIndexError, PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyIterator, PyList, PyTuple};

use crate::buffer::Buffer;
use crate::cancel::CancelToken;
use crate::content::Content;
use crate::error::raise_tensors;
use crate::load::seal;
use crate::run::{self, Watch};
use crate::small;
use crate::source::path;
use crate::tensor::Tensor;

/// A model whose headers were read and checked.
#[pyclass(module = "dmabuf_dio", frozen, weakref)]
#[derive(Debug)]
pub(crate) struct Model(Arc<dmabuf_dio_tensors::Model>);

/// The description of a tensor in its header.
#[pyclass(module = "dmabuf_dio", frozen)]
#[derive(Debug)]
pub(crate) struct TensorInfo {
    model: Arc<dmabuf_dio_tensors::Model>,
    number: usize,
}

impl TensorInfo {
    fn tensor(&self) -> &dmabuf_dio_tensors::Tensor {
        &self.model.tensors()[self.number]
    }
}

#[pymethods]
impl TensorInfo {
    #[getter]
    fn name(&self) -> &str {
        &self.tensor().name
    }

    #[getter]
    fn dtype(&self) -> &'static str {
        self.tensor().dtype.name()
    }

    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.tensor().shape)
    }

    #[getter]
    fn nbytes(&self) -> u64 {
        self.tensor().len()
    }

    /// Elements and bytes of the smallest unit of the type, as of a `Tensor`.
    #[getter]
    fn block(&self) -> (u64, u64) {
        let block = self.tensor().dtype.block();
        (block.elements, block.bytes)
    }

    /// `"little"`, or `"big"` in a big-endian GGUF file.
    #[getter]
    fn byte_order(&self) -> &'static str {
        self.tensor().byte_order.name()
    }

    /// Index of the file in `Model.files`.
    #[getter]
    fn file(&self) -> usize {
        self.tensor().file
    }

    /// Offset in the file, in bytes.
    #[getter]
    fn offset(&self) -> u64 {
        self.tensor().range.start
    }

    fn __repr__(&self) -> String {
        let tensor = self.tensor();
        format!("<dmabuf_dio.TensorInfo: {:?}, {}, {:?}>", tensor.name, tensor.dtype, tensor.shape)
    }
}

#[pymethods]
impl Model {
    /// Opens a safetensors or GGUF file, an index, or a folder with a model.
    #[new]
    fn new(py: Python<'_>, path: &Bound<'_, PyAny>) -> PyResult<Self> {
        let path = self::path(path)?;
        let watch = Watch { progress: None, cancel: None };
        let model = run::call(py, &watch, move |_| dmabuf_dio_tensors::Model::open(path))?;
        Ok(Self(Arc::new(model.map_err(|error| raise_tensors(py, &error))?)))
    }

    /// `"safetensors"` or `"GGUF"`.
    #[getter]
    fn format(&self) -> String {
        self.0.format().to_string()
    }

    #[getter]
    fn files(&self) -> Vec<std::ffi::OsString> {
        self.0.files().iter().map(|file| file.path().as_os_str().to_owned()).collect()
    }

    /// Keys and values of the first file's header.
    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        as_dict(py, self.0.metadata())
    }

    /// The same; `None` if the header has none, not even empty ones.
    #[getter]
    fn _metadata<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let metadata = self.0.metadata();
        metadata.is_present().then(|| as_dict(py, metadata)).transpose()
    }

    /// The names of the tensors, in the order of their bytes.
    fn keys(&self) -> Vec<&str> {
        self.0.tensors().iter().map(|tensor| tensor.name.as_str()).collect()
    }

    fn __len__(&self) -> usize {
        self.0.tensors().len()
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn __contains__(&self, name: &str) -> bool {
        self.0.tensor(name).is_some()
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        PyList::new(py, self.keys())?.try_iter()
    }

    fn __getitem__(&self, name: &str) -> PyResult<TensorInfo> {
        let number = self.0.index_of(name).ok_or_else(|| PyKeyError::new_err(name.to_owned()))?;
        Ok(TensorInfo { model: Arc::clone(&self.0), number })
    }

    /// Loads all tensors, or those named by `only`: nothing else is read except small gaps.
    #[pyo3(signature = (
        *, only = None, kind = "any", writable = false, backend = None, gap = None,
        concurrency = None, block_size = None, queue_depth = None, direct = true,
        huge_pages = true, progress = None, cancel = None,
    ))]
    fn load(
        &self,
        py: Python<'_>,
        only: Option<Vec<String>>,
        kind: &str,
        writable: bool,
        backend: Option<&str>,
        gap: Option<u64>,
        concurrency: Option<usize>,
        block_size: Option<u64>,
        queue_depth: Option<u32>,
        direct: bool,
        huge_pages: bool,
        progress: Option<Bound<'_, PyAny>>,
        cancel: Option<PyRef<'_, CancelToken>>,
    ) -> PyResult<Tensors> {
        let kind = crate::load::kind(kind)?;
        if kind == Kind::File {
            return Err(PyValueError::new_err(
                "kind=\"file\" is for whole files: choose \"dmabuf\", \"memfd\", \"any\" or \"private\"",
            ));
        }
        let backend = crate::load::backend(backend)?;
        let options = Options {
            kind,
            backend,
            block_size,
            queue_depth,
            direct,
            huge_pages,
            ..Options::default()
        };
        let model = Arc::clone(&self.0);
        let loaded = run::call(py, &Watch::new(progress, cancel), move |control| {
            let told = control.clone();
            let mut loader = model
                .loader()
                .options(options)
                .cancel(control.cancel.clone())
                .progress(move |progress| told.moved(progress.done, progress.total));
            if let Some(names) = only {
                loader = loader.only(names);
            }
            if let Some(bytes) = gap {
                loader = loader.gap(bytes);
            }
            if let Some(loads) = concurrency {
                loader = loader.concurrency(loads);
            }
            let loaded = loader.load()?;
            let mut buffers = Vec::with_capacity(loaded.buffers.len());
            for mut buf in loaded.buffers {
                seal(&mut buf, writable).map_err(Error::Buffer)?;
                let len = buf.len();
                buffers.push(Content::part(buf, 0, len, writable));
            }
            Ok((buffers, loaded.views, loaded.seconds))
        })?;
        let (buffers, views, seconds) = loaded.map_err(|error| raise_tensors(py, &error))?;
        let buffers = buffers.into_iter().map(|content| Py::new(py, Buffer::loaded(py, content)?));
        let buffers = buffers.collect::<PyResult<_>>()?;
        Ok(Tensors::new(buffers, views, seconds))
    }

    /// A tensor by its place among `keys()`, and its bytes, read through the page cache: that needs no
    /// setting up. No bytes if there are `most` or more, and they are not in the page cache.
    /// `around`: what is near them is read with them.
    fn _small<'py>(
        &self,
        py: Python<'py>,
        number: usize,
        most: u64,
        around: bool,
    ) -> PyResult<(TensorInfo, Option<Bound<'py, PyByteArray>>)> {
        let found = self.0.tensors().get(number);
        let tensor = found.ok_or_else(|| PyIndexError::new_err("there is no such tensor"))?;
        let wait = tensor.len() < most;
        let bytes = small::read(py, &self.0, tensor, 0..tensor.len(), wait, around)?;
        Ok((TensorInfo { model: Arc::clone(&self.0), number }, bytes))
    }

    /// A tensor by its place among `keys()`, and whether to map it: it has less than `most` bytes, or the
    /// page cache seems to have it.
    fn _mappable(&self, number: usize, most: u64) -> PyResult<(TensorInfo, bool)> {
        let found = self.0.tensors().get(number);
        let tensor = found.ok_or_else(|| PyIndexError::new_err("there is no such tensor"))?;
        let maps = tensor.len() < most || small::is_cached(&self.0, tensor);
        Ok((TensorInfo { model: Arc::clone(&self.0), number }, maps))
    }

    /// The descriptor of a file, which belongs to the model.
    fn _fd(&self, file: usize) -> PyResult<c_int> {
        let file = self.0.files().get(file);
        let file = file.ok_or_else(|| PyIndexError::new_err("there is no such file"))?;
        Ok(file.file().as_raw_fd())
    }

    /// Bytes of a tensor, read through the page cache.
    fn _part<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        start: u64,
        end: u64,
    ) -> PyResult<Option<Bound<'py, PyByteArray>>> {
        let tensor = self.0.tensor(name).ok_or_else(|| PyKeyError::new_err(name.to_owned()))?;
        small::read(py, &self.0, tensor, start..end, true, true)
    }

    /// Loads all tensors into writable memory of this process. Returns what `make` makes of them: it is
    /// called while their bytes are still being read, so it must not look at them. Returns None, and
    /// loads nothing, if the tensors are not one range of one file.
    fn _load_with<'py>(
        &self,
        py: Python<'py>,
        make: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let loader = self.0.loader();
        let one = loader.one_range().map_err(|error| raise_tensors(py, &error))?;
        let Some(one) = one else { return Ok(None) };
        let model = Arc::clone(&self.0);
        let work = move |control: &run::Control, ready: Sender<dmabuf_dio::Buffer>| {
            let loader = model.loader();
            let Some(one) = loader.one_range()? else { return Ok(()) };
            // The other thread waits for as long as this one lives.
            one.load(&control.cancel, |memory| drop(ready.send(memory))).map(drop)
        };
        let watch = Watch { progress: None, cancel: None };
        let (loaded, made) = run::call_with(py, &watch, work, |memory| {
            let buffer = Py::new(py, Buffer::new(Content::loaded(memory, true), None))?;
            make.call1((Tensors::new(vec![buffer], one.views(), 0.0),))
        })?;
        loaded.map_err(|error| raise_tensors(py, &error))?;
        Ok(made)
    }

    fn __repr__(&self) -> String {
        format!("<dmabuf_dio.Model: {}, {} tensors>", self.0.format(), self.0.tensors().len())
    }
}

/// Loaded tensors by name.
#[pyclass(module = "dmabuf_dio", frozen, weakref)]
#[derive(Debug)]
pub(crate) struct Tensors {
    buffers: Vec<Py<Buffer>>,
    names: HashMap<String, usize>,
    /// In the order of the model.
    views: Vec<View>,
    seconds: f64,
}

impl Tensors {
    fn new(buffers: Vec<Py<Buffer>>, views: Vec<View>, seconds: f64) -> Self {
        let names = views.iter().enumerate().map(|(number, view)| (view.name.clone(), number));
        Self { buffers, names: names.collect(), views, seconds }
    }

    fn tensor(&self, py: Python<'_>, view: &View) -> Tensor {
        let buffer = view.buffer.map(|number| self.buffers[number].clone_ref(py));
        Tensor::new(view.clone(), buffer)
    }
}

#[pymethods]
impl Tensors {
    /// The buffers that the tensors are in.
    #[getter]
    fn buffers(&self, py: Python<'_>) -> Vec<Py<Buffer>> {
        self.buffers.iter().map(|buffer| buffer.clone_ref(py)).collect()
    }

    /// Duration of the load in seconds.
    #[getter]
    fn seconds(&self) -> f64 {
        self.seconds
    }

    fn keys(&self) -> Vec<&str> {
        self.views.iter().map(|view| view.name.as_str()).collect()
    }

    fn values(&self, py: Python<'_>) -> Vec<Tensor> {
        self.views.iter().map(|view| self.tensor(py, view)).collect()
    }

    fn items(&self, py: Python<'_>) -> Vec<(&str, Tensor)> {
        self.views.iter().map(|view| (view.name.as_str(), self.tensor(py, view))).collect()
    }

    fn __len__(&self) -> usize {
        self.views.len()
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn __contains__(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        PyList::new(py, self.keys())?.try_iter()
    }

    fn __getitem__(&self, py: Python<'_>, name: &str) -> PyResult<Tensor> {
        let number = self.names.get(name).ok_or_else(|| PyKeyError::new_err(name.to_owned()))?;
        Ok(self.tensor(py, &self.views[*number]))
    }

    /// Frees the memory. Raises `BufferError` while a view of a tensor exists, and says of which
    /// tensor.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.buffers.iter().try_for_each(|buffer| buffer.get().close(py))
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        kind: Bound<'_, PyAny>,
        exception: Bound<'_, PyAny>,
        traceback: Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.buffers.iter().try_for_each(|buffer| {
            buffer.get().__exit__(py, kind.clone(), exception.clone(), traceback.clone())
        })
    }

    fn __repr__(&self) -> String {
        format!("<dmabuf_dio.Tensors: {} in {} buffers>", self.views.len(), self.buffers.len())
    }
}

fn as_dict<'py>(py: Python<'py>, metadata: &Metadata) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (key, value) in metadata.iter() {
        dict.set_item(key, as_object(py, value)?)?;
    }
    Ok(dict)
}

fn as_object<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::U8(number) => number.into_pyobject(py)?.into_any(),
        Value::I8(number) => number.into_pyobject(py)?.into_any(),
        Value::U16(number) => number.into_pyobject(py)?.into_any(),
        Value::I16(number) => number.into_pyobject(py)?.into_any(),
        Value::U32(number) => number.into_pyobject(py)?.into_any(),
        Value::I32(number) => number.into_pyobject(py)?.into_any(),
        Value::U64(number) => number.into_pyobject(py)?.into_any(),
        Value::I64(number) => number.into_pyobject(py)?.into_any(),
        Value::F32(number) => number.into_pyobject(py)?.into_any(),
        Value::F64(number) => number.into_pyobject(py)?.into_any(),
        Value::Bool(value) => value.into_pyobject(py)?.to_owned().into_any(),
        Value::String(text) => text.into_pyobject(py)?.into_any(),
        Value::Bytes(bytes) => PyBytes::new(py, bytes).into_any(),
        Value::Array(array) => as_list(py, array)?.into_any(),
        _ => py.None().into_bound(py),
    })
}

/// `str`, or `bytes` where they are not UTF-8.
fn string<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    Ok(match std::str::from_utf8(bytes) {
        Ok(text) => text.into_pyobject(py)?.into_any(),
        Err(_) => PyBytes::new(py, bytes).into_any(),
    })
}

fn as_list<'py>(py: Python<'py>, array: &Array) -> PyResult<Bound<'py, PyList>> {
    match array {
        // PyO3 makes bytes of bytes.
        Array::U8(items) => PyList::new(py, items.iter().map(|item| u32::from(*item))),
        Array::I8(items) => PyList::new(py, items),
        Array::U16(items) => PyList::new(py, items),
        Array::I16(items) => PyList::new(py, items),
        Array::U32(items) => PyList::new(py, items),
        Array::I32(items) => PyList::new(py, items),
        Array::U64(items) => PyList::new(py, items),
        Array::I64(items) => PyList::new(py, items),
        Array::F32(items) => PyList::new(py, items),
        Array::F64(items) => PyList::new(py, items),
        Array::Bool(items) => PyList::new(py, items),
        Array::String(items) => {
            let items = items.iter().map(|item| string(py, item));
            PyList::new(py, items.collect::<PyResult<Vec<_>>>()?)
        }
        _ => Ok(PyList::empty(py)),
    }
}
