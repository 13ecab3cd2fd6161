// SPDX-License-Identifier: MIT OR Apache-2.0
//! `Tensor`: a range of a buffer with a type and a shape.

use std::ffi::c_int;
use std::sync::Arc;

use dmabuf_dio_tensors::{ByteOrder, Dtype, View};
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyInt};

use crate::buffer::Buffer;
use crate::described::Described;
use crate::dlpack::{self, DataType, Shaped};
use crate::options::Keywords;
use crate::view::{self, Part};

/// A tensor in a buffer. It keeps the buffer alive and open, but is not a view of it:
/// `memoryview()`, `numpy()`, `torch()` and `from_dlpack()` create views, which copy nothing.
#[pyclass(module = "dmabuf_dio", extends = Described, frozen, weakref)]
#[derive(Debug)]
pub(crate) struct Tensor {
    view: Arc<View>,
    /// `None` for a tensor without bytes.
    buffer: Option<Py<Buffer>>,
    /// Offset in the buffer's descriptor, in bytes, for a device that imports it.
    #[pyo3(get)]
    offset: Py<PyInt>,
}

impl Tensor {
    pub(crate) fn new(
        py: Python<'_>,
        view: Arc<View>,
        buffer: Option<Py<Buffer>>,
    ) -> PyResult<Py<Self>> {
        let kind = (view.dtype, view.byte_order);
        let described = Described::new(py, &view.name, kind, &view.shape, view.len)?;
        let place = buffer.as_ref().map_or(0, |buffer| buffer.get().start() + view.offset);
        let offset = place.into_pyobject(py)?.unbind();
        let own = Self { view, buffer, offset };
        Py::new(py, PyClassInitializer::from(described).add_subclass(own))
    }

    /// The name in exceptions.
    fn label(&self) -> String {
        format!("tensor {:?}", self.view.name)
    }
}

#[pymethods]
impl Tensor {
    /// The buffer; `None` for a tensor without bytes.
    #[getter]
    fn buffer(&self, py: Python<'_>) -> Option<Py<Buffer>> {
        self.buffer.as_ref().map(|buffer| buffer.clone_ref(py))
    }

    fn __len__(&self) -> PyResult<usize> {
        let none = || PyTypeError::new_err("len() of a tensor without dimensions");
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
        // SAFETY: the arguments follow the protocol; the loader checked the range.
        unsafe {
            (*view).obj = std::ptr::null_mut();
            if let Some(buffer) = &tensor.buffer {
                let (buffer, name) = (buffer.get(), &*tensor.label());
                let part = Part { offset: tensor.view.offset, len: tensor.view.len, name };
                return view::fill(py, view, flags, part, |label, pins| {
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

    #[pyo3(signature = (**options))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        options: Option<Keywords<'_>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let cannot = |text: String| Err(PyBufferError::new_err(text));
        let Some(dtype) = data_type(self.view.dtype) else {
            let name = self.view.dtype;
            return cannot(format!(
                "DLPack has no type {name}: use memoryview(), which has the bytes"
            ));
        };
        if self.view.byte_order == ByteOrder::Big && dtype.bits > 8 {
            return cannot(
                "the tensor is big-endian, which DLPack cannot say: use numpy() or torch()".into(),
            );
        }
        let Some(buffer) = self.buffer.as_ref().map(Py::get) else {
            return cannot("the tensor has no bytes: create an empty one".into());
        };
        if (buffer.start() + self.view.offset) % u64::from(dtype.bits / 8) != 0 {
            return cannot(
                "the tensor is not aligned to its type in the file: copy memoryview()".into(),
            );
        }
        let shape = self.view.shape.iter().map(|dimension| *dimension as i64).collect();
        let view = buffer.begin_view(py, dlpack::label(py, &self.label()), false)?;
        dlpack::export(py, view, Shaped { offset: self.view.offset, shape, dtype }, options)
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        dlpack::CPU
    }
}

/// The type in dlpack.h; `None` for packed and quantised ones.
pub(crate) fn data_type(dtype: Dtype) -> Option<DataType> {
    let code = match dtype {
        Dtype::I8 | Dtype::I16 | Dtype::I32 | Dtype::I64 => 0,
        Dtype::U8 | Dtype::U16 | Dtype::U32 | Dtype::U64 => 1,
        Dtype::F16 | Dtype::F32 | Dtype::F64 => 2,
        Dtype::Bf16 => 4,
        Dtype::C64 => 5,
        Dtype::Bool => 6,
        Dtype::F8E4M3 => 10,
        Dtype::F8E4M3Fnuz => 11,
        Dtype::F8E5M2 => 12,
        Dtype::F8E5M2Fnuz => 13,
        Dtype::F8E8M0 => 14,
        _ => return None,
    };
    Some(DataType { code, bits: dtype.block().bytes as u8 * 8, lanes: 1 })
}
