// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report of a transfer: plain data, which may go from process to process.

use std::collections::BTreeMap;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde::{Deserialize, Serialize};

/// The actions and the cost of a transfer.
#[pyclass(module = "dmabuf_dio", frozen, get_all)]
#[derive(Debug, Deserialize)]
#[allow(clippy::unsafe_derive_deserialize, reason = "the methods are PyO3's")]
pub(crate) struct Report {
    operation: String,
    backend: Option<String>,
    mode: String,
    evidence: String,
    bytes: u64,
    copied_bytes: u64,
    seconds: f64,
    cpu_seconds: f64,
    gb_per_second: f64,
    page_cache_grown: Option<i64>,
    storage_bytes: Option<u64>,
    page_size: Option<u64>,
    huge_bytes: Option<u64>,
    numa: Option<Numa>,
    nodes: Option<BTreeMap<u32, u64>>,
    locked: bool,
    segments: Option<u32>,
    notes: Vec<String>,
    #[serde(skip)]
    refusals: Vec<Refusal>,
    /// The whole report as JSON. The other fields are parts of it.
    #[serde(skip)]
    #[pyo3(name = "_json")]
    json: String,
    #[serde(skip)]
    #[pyo3(name = "_line")]
    line: String,
}

/// A word, or the number of a node.
#[derive(Clone, Debug, Deserialize, IntoPyObject)]
#[serde(untagged)]
enum Numa {
    Node(u32),
    Word(String),
}

/// Why a backend was not available.
#[pyclass(module = "dmabuf_dio", frozen, eq, get_all, from_py_object)]
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

impl Report {
    pub(crate) fn new(report: &dmabuf_dio::Report) -> PyResult<Self> {
        let refusals = report.refusals.iter().map(Refusal::from).collect();
        Self::parse(json(report)?, report.to_string(), refusals)
    }
}

#[pymethods]
impl Report {
    #[new]
    fn parse(json: String, line: String, refusals: Vec<Refusal>) -> PyResult<Self> {
        let report: Self = serde_json::from_str(&json).map_err(unexpected)?;
        Ok(Self { refusals, json, line, ..report })
    }

    /// What `new` takes, for pickle.
    fn __getnewargs__(&self) -> (&str, &str, Vec<Refusal>) {
        (&self.json, &self.line, self.refusals.clone())
    }

    /// Everything, as `dmabuf-dio load --json` prints it.
    fn as_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        as_dict(py, &self.json)
    }

    fn __str__(&self) -> &str {
        &self.line
    }

    fn __repr__(&self) -> String {
        format!("<dmabuf_dio.Report: {}>", self.line)
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
    serde_json::to_string(value).map_err(unexpected)
}

/// A value as `json.loads` would return it.
pub(crate) fn as_dict<'py>(py: Python<'py>, value: &str) -> PyResult<Bound<'py, PyDict>> {
    Ok(py.import("json")?.call_method1("loads", (value,))?.cast_into()?)
}

fn unexpected(error: serde_json::Error) -> PyErr {
    PyValueError::new_err(error.to_string())
}
