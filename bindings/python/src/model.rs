// SPDX-License-Identifier: MIT OR Apache-2.0
//! `Model`: the headers of safetensors and GGUF files.

use std::ffi::c_int;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use dmabuf_dio::Kind;
use dmabuf_dio_tensors::{Error, Tensor};
use pyo3::exceptions::{PyIndexError, PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyDict, PyIterator, PyList};

use crate::buffer::Buffer;
use crate::content::{Content, seal};
use crate::described::TensorInfo;
use crate::error::raise_tensors;
use crate::metadata::as_dict;
use crate::options::{Given, Keywords};
use crate::run::{self, Watch};
use crate::small;
use crate::source::path;
use crate::tensors::Tensors;

/// A model whose headers were read and checked.
#[pyclass(module = "dmabuf_dio", frozen, weakref)]
#[derive(Debug)]
pub(crate) struct Model(Arc<dmabuf_dio_tensors::Model>);

impl Model {
    fn named(&self, name: &str) -> PyResult<&Tensor> {
        self.0.tensor(name).ok_or_else(|| PyKeyError::new_err(name.to_owned()))
    }

    fn numbered(&self, number: usize) -> PyResult<&Tensor> {
        let found = self.0.tensors().get(number);
        found.ok_or_else(|| PyIndexError::new_err("there is no such tensor"))
    }
}

#[pymethods]
impl Model {
    /// Opens a safetensors or GGUF file, an index, or a folder with a model.
    #[new]
    fn new(py: Python<'_>, path: &Bound<'_, PyAny>) -> PyResult<Self> {
        let path = self::path(path)?;
        let model =
            run::call(py, &Watch::default(), move |_| dmabuf_dio_tensors::Model::open(path))?;
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

    fn __getitem__(&self, py: Python<'_>, name: &str) -> PyResult<Py<TensorInfo>> {
        TensorInfo::of(py, self.named(name)?)
    }

    /// Loads all tensors, or those named by `only`: nothing else is read except small gaps. Options:
    /// `types.TensorOptions`.
    #[pyo3(signature = (**options))]
    fn load(&self, py: Python<'_>, options: Option<Keywords<'_>>) -> PyResult<Tensors> {
        let given = Given::new("load", options);
        let (options, watch) = (given.load()?, given.watch()?);
        if options.kind == Kind::File {
            return Err(PyValueError::new_err(
                "kind=\"file\" is for whole files: choose \"dmabuf\", \"memfd\", \"any\" or \"private\"",
            ));
        }
        let only = given.take::<Vec<String>>("only")?;
        let (gap, concurrency) = (given.take::<u64>("gap")?, given.take::<usize>("concurrency")?);
        let writable = given.take_or("writable", false)?;
        given.end()?;
        let model = Arc::clone(&self.0);
        let loaded = run::call(py, &watch, move |control| {
            let told = control.clone();
            let loader = model.loader().options(options).gap(gap).concurrency(concurrency);
            let loader = loader
                .cancel(control.cancel.clone())
                .progress(move |progress| told.moved(progress.done, progress.total));
            let mut loaded = match only {
                Some(names) => loader.only(names).load()?,
                None => loader.load()?,
            };
            for buf in &mut loaded.buffers {
                seal(buf, writable).map_err(Error::Buffer)?;
            }
            Ok(loaded)
        })?;
        let loaded = loaded.map_err(|error| raise_tensors(py, &error))?;
        let buffers = loaded.buffers.into_iter().map(|buf| {
            let len = buf.len();
            Py::new(py, Buffer::loaded(py, Content::part(buf, 0, len, writable))?)
        });
        Ok(Tensors::new(buffers.collect::<PyResult<_>>()?, loaded.views, loaded.seconds))
    }

    /// A tensor by its place among `keys()`, and its bytes, read through the page cache: that needs
    /// no setting up. No bytes if there are `most` or more, and they are not in the page cache.
    /// `around`: also reads bytes near them.
    fn _small<'py>(
        &self,
        py: Python<'py>,
        number: usize,
        most: u64,
        around: bool,
    ) -> PyResult<(Py<TensorInfo>, Option<Bound<'py, PyByteArray>>)> {
        let tensor = self.numbered(number)?;
        let wait = tensor.len() < most;
        let bytes = small::read(py, &self.0, tensor, 0..tensor.len(), wait, around)?;
        Ok((TensorInfo::of(py, tensor)?, bytes))
    }

    /// A tensor by its place among `keys()`, and whether to map it: it has less than `most` bytes, or the
    /// page cache seems to have it.
    fn _mappable(
        &self,
        py: Python<'_>,
        number: usize,
        most: u64,
    ) -> PyResult<(Py<TensorInfo>, bool)> {
        let tensor = self.numbered(number)?;
        let maps = tensor.len() < most || small::is_cached(&self.0, tensor);
        Ok((TensorInfo::of(py, tensor)?, maps))
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
        small::read(py, &self.0, self.named(name)?, start..end, true, true)
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
        let (loaded, made) = run::call_with(py, &Watch::default(), work, |memory| {
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
