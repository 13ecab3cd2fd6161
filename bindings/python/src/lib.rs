// SPDX-License-Identifier: MIT OR Apache-2.0
//! The extension module of the Python package `dmabuf_dio`.
//!
//! `content.rs` holds a buffer's memory and counts its views; `buffer.rs`, `view.rs` and
//! `dlpack.rs` provide views to Python. `run.rs` makes every blocking call in a separate thread,
//! while the calling thread runs signal handlers and callbacks. `error.rs` turns errors into
//! Python's. `lock.rs` has locks that a child of
//! fork(2) finds free. `small.rs` reads what is not worth a load. `code.rs` has the extension's code in memory before the first load.

#![cfg(target_os = "linux")]

mod blocks;
mod buffer;
mod cancel;
mod code;
mod content;
mod dlpack;
mod doctor;
mod error;
mod gather;
mod load;
mod lock;
mod report;
mod run;
mod save;
mod small;
mod source;
mod tensor;
mod tensors;
mod view;

/// The extension module: everything in it is exported by the package.
#[pyo3::pymodule]
mod _native {
    use pyo3::exceptions::PyImportError;
    use pyo3::ffi;
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::blocks::reader::{BlockReader, capture, read_blocks};
    #[pymodule_export]
    use crate::blocks::writer::{BlockWriter, replay, write_blocks};
    #[pymodule_export]
    use crate::buffer::Buffer;
    #[pymodule_export]
    use crate::cancel::CancelToken;
    #[pymodule_export]
    use crate::doctor::doctor;
    #[pymodule_export]
    use crate::gather::{Gathered, Gathering, gather};
    #[pymodule_export]
    use crate::load::{load, load_into};
    #[pymodule_export]
    use crate::report::{Refusal, Report};
    #[pymodule_export]
    use crate::save::save;
    #[pymodule_export]
    use crate::tensor::Tensor;
    #[pymodule_export]
    use crate::tensors::{Model, TensorInfo, Tensors};

    /// The types and the state of the extension are per process: another interpreter is refused.
    #[pymodule_init]
    fn init(_module: &Bound<'_, PyModule>) -> PyResult<()> {
        // SAFETY: the interpreter is attached.
        let number = unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) };
        if number == 0 {
            crate::lock::watch_forks();
            crate::code::populate();
            return Ok(());
        }
        Err(PyImportError::new_err("dmabuf_dio does not support being used in a subinterpreter"))
    }
}
