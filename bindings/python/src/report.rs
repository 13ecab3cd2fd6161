// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a transfer did.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde::Serialize;

/// What a transfer did and what it cost.
#[pyclass(module = "dmabuf_dio", frozen)]
#[derive(Debug)]
pub(crate) struct Report(pub(crate) dmabuf_dio::Report);

/// Why a backend was not available. Plain data, which exceptions carry from process to process.
#[pyclass(module = "dmabuf_dio", frozen, eq, get_all)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    backend: String,
    reason: String,
    errno: Option<i32>,
    remedy: Option<String>,
}

impl From<&dmabuf_dio::Refusal> for Refusal {
    fn from(refusal: &dmabuf_dio::Refusal) -> Self {
        Self {
            backend: refusal.backend.name().to_owned(),
            reason: refusal.reason.clone(),
            errno: refusal.errno.map(dmabuf_dio::Errno::raw),
            remedy: refusal.remedy.clone(),
        }
    }
}

/// A value as `json.loads` would return it.
pub(crate) fn as_dict<'py>(py: Python<'py>, value: &str) -> PyResult<Bound<'py, PyDict>> {
    Ok(py.import("json")?.call_method1("loads", (value,))?.cast_into()?)
}

#[pymethods]
impl Report {
    #[getter]
    fn operation(&self) -> &'static str {
        crate::error::verb(self.0.operation)
    }

    #[getter]
    fn backend(&self) -> Option<&'static str> {
        self.0.backend.map(dmabuf_dio::Backend::name)
    }

    #[getter]
    fn mode(&self) -> &'static str {
        self.0.mode.name()
    }

    #[getter]
    fn evidence(&self) -> &str {
        &self.0.evidence
    }

    #[getter]
    fn bytes(&self) -> u64 {
        self.0.bytes
    }

    #[getter]
    fn copied_bytes(&self) -> u64 {
        self.0.copied_bytes
    }

    #[getter]
    fn seconds(&self) -> f64 {
        self.0.seconds
    }

    #[getter]
    fn cpu_seconds(&self) -> f64 {
        self.0.cpu_seconds
    }

    #[getter]
    fn gb_per_second(&self) -> f64 {
        self.0.gb_per_second
    }

    #[getter]
    fn page_cache_grown(&self) -> Option<i64> {
        self.0.page_cache_grown
    }

    #[getter]
    fn storage_bytes(&self) -> Option<u64> {
        self.0.storage_bytes
    }

    #[getter]
    fn page_size(&self) -> Option<u64> {
        self.0.page_size
    }

    #[getter]
    fn huge_bytes(&self) -> Option<u64> {
        self.0.huge_bytes
    }

    #[getter]
    fn segments(&self) -> Option<u32> {
        self.0.segments
    }

    #[getter]
    fn notes(&self) -> Vec<String> {
        self.0.notes.clone()
    }

    #[getter]
    fn refusals(&self) -> Vec<Refusal> {
        self.0.refusals.iter().map(Refusal::from).collect()
    }

    /// Everything, as `dmabuf-dio load --json` prints it.
    fn as_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        as_dict(py, &json(&self.0)?)
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        format!("<dmabuf_dio.Report: {}>", self.0)
    }
}

#[pymethods]
impl Refusal {
    #[new]
    fn new(backend: String, reason: String, errno: Option<i32>, remedy: Option<String>) -> Self {
        Self { backend, reason, errno, remedy }
    }

    /// What `new` takes, for pickle.
    fn __getnewargs__(&self) -> (&str, &str, Option<i32>, Option<&str>) {
        (&self.backend, &self.reason, self.errno, self.remedy.as_deref())
    }

    fn __repr__(&self) -> String {
        format!("<dmabuf_dio.Refusal: {}: {}>", self.backend, self.reason)
    }
}

/// The text of a value that has names for keys.
pub(crate) fn json(value: &impl Serialize) -> PyResult<String> {
    serde_json::to_string(value)
        .map_err(|error| pyo3::exceptions::PyRuntimeError::new_err(error.to_string()))
}
