// SPDX-License-Identifier: MIT OR Apache-2.0
//! `Tensors`: the loaded tensors of a model.

use std::collections::HashMap;
use std::sync::Arc;

use dmabuf_dio_tensors::View;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyList, PyTuple};

use crate::buffer::Buffer;
use crate::tensor::Tensor;

/// Loaded tensors by name.
#[pyclass(module = "dmabuf_dio", frozen, weakref)]
#[derive(Debug)]
pub(crate) struct Tensors {
    buffers: Vec<Py<Buffer>>,
    names: HashMap<String, usize>,
    /// In the order of the model.
    views: Vec<Arc<View>>,
    /// Duration of the load in seconds.
    #[pyo3(get)]
    seconds: f64,
}

impl Tensors {
    pub(crate) fn new(buffers: Vec<Py<Buffer>>, views: Vec<View>, seconds: f64) -> Self {
        let views: Vec<_> = views.into_iter().map(Arc::new).collect();
        let names = views.iter().enumerate().map(|(number, view)| (view.name.clone(), number));
        Self { buffers, names: names.collect(), views, seconds }
    }

    fn tensor(&self, py: Python<'_>, view: &Arc<View>) -> PyResult<Py<Tensor>> {
        let buffer = view.buffer.map(|number| self.buffers[number].clone_ref(py));
        Tensor::new(py, Arc::clone(view), buffer)
    }
}

#[pymethods]
impl Tensors {
    /// The buffers that the tensors are in.
    #[getter]
    fn buffers(&self, py: Python<'_>) -> Vec<Py<Buffer>> {
        self.buffers.iter().map(|buffer| buffer.clone_ref(py)).collect()
    }

    fn keys(&self) -> Vec<&str> {
        self.views.iter().map(|view| view.name.as_str()).collect()
    }

    fn values(&self, py: Python<'_>) -> PyResult<Vec<Py<Tensor>>> {
        self.views.iter().map(|view| self.tensor(py, view)).collect()
    }

    fn items(&self, py: Python<'_>) -> PyResult<Vec<(&str, Py<Tensor>)>> {
        self.views.iter().map(|view| Ok((view.name.as_str(), self.tensor(py, view)?))).collect()
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

    fn __getitem__(&self, py: Python<'_>, name: &str) -> PyResult<Py<Tensor>> {
        let number = self.names.get(name).ok_or_else(|| PyKeyError::new_err(name.to_owned()))?;
        self.tensor(py, &self.views[*number])
    }

    /// Frees the memory. Raises `BufferError` while a view of a tensor exists, and says of which
    /// tensor.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.buffers.iter().try_for_each(|buffer| buffer.get().close(py))
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*exception))]
    fn __exit__(&self, py: Python<'_>, exception: Bound<'_, PyTuple>) -> PyResult<()> {
        self.buffers.iter().try_for_each(|buffer| buffer.get().__exit__(py, exception.clone()))
    }

    fn __repr__(&self) -> String {
        format!("<dmabuf_dio.Tensors: {} in {} buffers>", self.views.len(), self.buffers.len())
    }
}
