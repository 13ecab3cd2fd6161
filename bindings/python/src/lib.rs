// SPDX-License-Identifier: MIT OR Apache-2.0
//! The extension module of the Python package `dmabuf_dio`.
//!
//! `content.rs` holds a buffer's memory and counts who looks at it; `buffer.rs`, `memory.rs` and
//! `dlpack.rs` are the ways to look at it from Python. `run.rs` makes every blocking call: in a thread
//! of its own, while the calling one runs signal handlers and callbacks. `error.rs` turns errors into
//! Python's.

#![cfg(target_os = "linux")]

mod buffer;
mod cancel;
mod content;
mod dlpack;
mod doctor;
mod error;
mod gather;
mod load;
mod memory;
mod report;
mod run;
mod save;
mod source;
mod tensor;
mod tensors;

/// The extension module: everything in it is exported by the package.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::buffer::Buffer;
    #[pymodule_export]
    use crate::cancel::CancelToken;
    #[pymodule_export]
    use crate::doctor::doctor;
    #[pymodule_export]
    use crate::gather::{Gathered, Gatherer, gather};
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
}
