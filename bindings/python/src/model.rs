// SPDX-License-Identifier: MIT OR Apache-2.0
//! `Model`: the headers of safetensors and GGUF files.

use std::sync::Arc;

use dmabuf_dio::Kind;
use dmabuf_dio_tensors::{Error, Tensor};
use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyIterator, PyList};

use crate::buffer::Buffer;
use crate::content::{Content, seal};
use crate::described::TensorInfo;
use crate::error::raise_tensors;
use crate::metadata::as_dict;
use crate::options::{Given, Keywords};
use crate::remote::Url;
use crate::run::{self, Watch};
use crate::source::{found, path};
use crate::tensors::Tensors;

/// A model whose headers were read and checked.
#[pyclass(module = "dmabuf_dio", frozen, weakref)]
#[derive(Debug)]
pub(crate) struct Model(Arc<dmabuf_dio_tensors::Model>);

impl Model {
    fn named(&self, name: &str) -> PyResult<&Tensor> {
        self.0.tensor(name).ok_or_else(|| PyKeyError::new_err(name.to_owned()))
    }

    pub(crate) fn shared(&self) -> &Arc<dmabuf_dio_tensors::Model> {
        &self.0
    }
}

#[pymethods]
impl Model {
    /// Opens a safetensors or GGUF file, an index, or a folder with a model: of this machine, or by URL.
    #[new]
    fn new(py: Python<'_>, path: &Bound<'_, PyAny>) -> PyResult<Self> {
        let path = self::path(path)?;
        let url = Url::of(&path);
        let path = if url.is_some() { path } else { found(py, path)? };
        let model = run::call(py, &Watch::default(), move |control| match url {
            Some(url) => url.open_model(&control.cancel),
            None => dmabuf_dio_tensors::Model::open(path),
        })?;
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

    fn __repr__(&self) -> String {
        format!("<dmabuf_dio.Model: {}, {} tensors>", self.0.format(), self.0.tensors().len())
    }
}
