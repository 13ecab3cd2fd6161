// SPDX-License-Identifier: MIT OR Apache-2.0
//! `Tensor`: a range of a buffer with a type and a shape.

use std::ffi::c_int;

use dmabuf_dio_tensors::{ByteOrder, Dtype, View};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};

use crate::buffer::Buffer;
use crate::dlpack::{self, DataType, Export, Shaped};
use crate::view::{self, Part};

/// A tensor in a buffer. It keeps the buffer alive and open, but is not a view of it:
/// `memoryview()`, `numpy()`, `torch()` and `from_dlpack()` create views, which copy nothing.
#[pyclass(module = "dmabuf_dio", frozen, weakref)]
#[derive(Debug)]
pub(crate) struct Tensor {
    view: View,
    /// `None` for a tensor without bytes.
    buffer: Option<Py<Buffer>>,
    label: String,
}

impl Tensor {
    pub(crate) fn new(view: View, buffer: Option<Py<Buffer>>) -> Self {
        let label = format!("tensor {:?}", view.name);
        Self { view, buffer, label }
    }

    /// Offset in the content of the buffer.
    fn part(&self) -> Part<'_> {
        Part { offset: self.view.offset, len: self.view.len, name: &self.label }
    }
}

#[pymethods]
impl Tensor {
    #[getter]
    fn name(&self) -> &str {
        &self.view.name
    }

    /// The name of the type in its format's spelling: `"BF16"`, `"Q4_K"`.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.view.dtype.name()
    }

    /// Elements in each dimension, the outermost first.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.view.shape)
    }

    /// Length in bytes.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.view.len
    }

    /// Elements and bytes of the smallest unit of the type: `(1, 2)` for BF16, `(256, 144)` for `Q4_K`.
    #[getter]
    fn block(&self) -> (u64, u64) {
        let block = self.view.dtype.block();
        (block.elements, block.bytes)
    }

    /// `"little"`, or `"big"` in a big-endian GGUF file.
    #[getter]
    fn byte_order(&self) -> &'static str {
        self.view.byte_order.name()
    }

    /// The buffer; `None` for a tensor without bytes.
    #[getter]
    fn buffer(&self, py: Python<'_>) -> Option<Py<Buffer>> {
        self.buffer.as_ref().map(|buffer| buffer.clone_ref(py))
    }

    /// Offset in the buffer's descriptor, in bytes, for a device that imports it.
    #[getter]
    fn offset(&self) -> PyResult<u64> {
        match &self.buffer {
            Some(buffer) => Ok(buffer.get().content()?.start() + self.view.offset),
            None => Ok(0),
        }
    }

    fn __len__(&self) -> PyResult<usize> {
        let none =
            || pyo3::exceptions::PyTypeError::new_err("len() of a tensor without dimensions");
        self.view.shape.first().map(|first| *first as usize).ok_or_else(none)
    }

    // A tensor is not false for being empty.
    fn __bool__(&self) -> bool {
        true
    }

    unsafe fn __getbuffer__(
        slf: &Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let (py, tensor) = (slf.py(), slf.get());
        // SAFETY: the arguments are those of the protocol; the loader checked the range.
        unsafe {
            (*view).obj = std::ptr::null_mut();
            if let Some(buffer) = &tensor.buffer {
                let buffer = buffer.get();
                return view::fill(py, view, flags, tensor.part(), |label, pins| {
                    buffer.begin_view(py, label, pins)
                });
            }
            // No byte of it is read.
            let nothing = std::ptr::NonNull::<u64>::dangling().as_ptr().cast();
            match ffi::PyBuffer_FillInfo(view, slf.as_ptr(), nothing, 0, 1, flags) {
                0 => Ok(()),
                _ => Err(PyErr::fetch(py)),
            }
        }
    }

    // Views refer to objects of their own. NumPy keeps views only of types that want them back.
    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {}

    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let dtype = data_type(self.view.dtype).ok_or_else(|| {
            PyBufferError::new_err(format!(
                "DLPack has no type {}: use memoryview(), which has the bytes",
                self.view.dtype
            ))
        })?;
        if self.view.byte_order == ByteOrder::Big && dtype.bits > 8 {
            return Err(PyBufferError::new_err(
                "the tensor is big-endian, which DLPack cannot say: use numpy() or torch()",
            ));
        }
        let Some(buffer) = &self.buffer else {
            return Err(PyBufferError::new_err("the tensor has no bytes: create an empty one"));
        };
        let buffer = buffer.get();
        let size = u64::from(dtype.bits / 8);
        if (buffer.content()?.start() + self.view.offset) % size != 0 {
            return Err(PyBufferError::new_err(
                "the tensor is not aligned to its type in the file: copy memoryview()",
            ));
        }
        let shape = self.view.shape.iter().map(|dimension| *dimension as i64).collect();
        let what = Shaped { offset: self.view.offset, shape, dtype, name: &self.label };
        dlpack::export(py, buffer, what, &Export { stream, max_version, device: dl_device, copy })
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        dlpack::CPU
    }

    /// The tensor as a NumPy array. Types that NumPy lacks need the package `ml_dtypes`; quantised
    /// ones are bytes.
    fn numpy<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("dmabuf_dio.numpy")?.call_method1("as_array", (slf,))
    }

    /// The tensor as a torch tensor. Types that torch lacks are bytes.
    fn torch<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("dmabuf_dio.torch")?.call_method1("as_tensor", (slf,))
    }

    fn __repr__(&self) -> String {
        let View { name, dtype, shape, .. } = &self.view;
        format!("<dmabuf_dio.Tensor: {name:?}, {dtype}, {shape:?}>")
    }
}

/// The type in dlpack.h; `None` for packed and quantised ones.
fn data_type(dtype: Dtype) -> Option<DataType> {
    let (code, bits) = match dtype {
        Dtype::I8 => (0, 8),
        Dtype::I16 => (0, 16),
        Dtype::I32 => (0, 32),
        Dtype::I64 => (0, 64),
        Dtype::U8 => (1, 8),
        Dtype::U16 => (1, 16),
        Dtype::U32 => (1, 32),
        Dtype::U64 => (1, 64),
        Dtype::F16 => (2, 16),
        Dtype::F32 => (2, 32),
        Dtype::F64 => (2, 64),
        Dtype::Bf16 => (4, 16),
        Dtype::C64 => (5, 64),
        Dtype::Bool => (6, 8),
        Dtype::F8E4M3 => (10, 8),
        Dtype::F8E4M3Fnuz => (11, 8),
        Dtype::F8E5M2 => (12, 8),
        Dtype::F8E5M2Fnuz => (13, 8),
        Dtype::F8E8M0 => (14, 8),
        _ => return None,
    };
    Some(DataType { code, bits, lanes: 1 })
}
