// SPDX-License-Identifier: MIT OR Apache-2.0
//! The extension module of the Python package `dmabuf_dio`.
//!
//! `content.rs` holds a buffer's memory and counts its views; `buffer.rs`, `view.rs` and `dlpack.rs`
//! provide views to Python. `run.rs` makes every blocking call in a separate thread, while the
//! calling thread runs signal handlers and callbacks. `options.rs` takes keyword arguments.
//! `error.rs` turns errors into Python's. `lock.rs` has locks that a child of fork(2) finds free.
//! `save.rs` saves tensors of other libraries.
//! `small.rs` reads tensors that are not worth a load. `remote.rs` opens URLs; `remote/object.rs` opens objects again in
//! a child of fork(2). `code.rs` has the extension's code in memory
//! before the first load.

#![cfg(target_os = "linux")]

mod blocks;
mod buffer;
mod cancel;
mod checks;
mod code;
mod command;
mod content;
mod described;
mod device;
mod dlpack;
mod doctor;
mod error;
mod gather;
mod lock;
mod mapped;
mod metadata;
mod model;
mod options;
mod page;
mod reader;
mod remote;
mod report;
mod run;
mod save;
mod small;
mod source;
mod tensor;
mod tensors;
mod transfer;
mod view;

/// The extension module: everything in it is exported by the package.
#[pyo3::pymodule]
mod _native {
    use pyo3::exceptions::PyImportError;
    use pyo3::ffi;
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::{
        blocks::reader::{BlockReader, capture, read_blocks},
        blocks::writer::{BlockWriter, replay, write_blocks},
        buffer::Buffer,
        cancel::CancelToken,
        command::command,
        described::TensorInfo,
        device::Device,
        device::tensor::DeviceTensor,
        doctor::doctor,
        gather::{Gathered, Gathering, gather},
        model::Model,
        reader::Reader,
        remote::is_url_in_python,
        report::{Refusal, Report},
        save::save_tensors,
        tensor::Tensor,
        tensors::Tensors,
        transfer::{load, load_into, save},
    };

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
