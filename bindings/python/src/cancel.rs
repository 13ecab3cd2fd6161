// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stopping a transfer from another thread.

use pyo3::prelude::*;

/// Stops the transfers that it was passed to.
#[pyclass(module = "dmabuf_dio", frozen)]
#[derive(Debug, Default)]
pub(crate) struct CancelToken(pub(crate) dmabuf_dio::CancelToken);

#[pymethods]
impl CancelToken {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Stops all current and future transfers that use this token.
    fn cancel(&self) {
        self.0.cancel();
    }

    /// Whether `cancel()` was called.
    #[getter]
    fn cancelled(&self) -> bool {
        self.0.is_cancelled()
    }

    fn __repr__(&self) -> String {
        format!("CancelToken(cancelled={})", if self.cancelled() { "True" } else { "False" })
    }
}
