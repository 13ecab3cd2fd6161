// SPDX-License-Identifier: MIT OR Apache-2.0
//! `DeviceTensor`: a tensor in memory of a device.

use dmabuf_dio_device::{Device, DeviceMemory, Vendor};
use dmabuf_dio_tensors::{ByteOrder, Dtype, Tensor};
use pyo3::exceptions::{PyAttributeError, PyBufferError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyTuple};

use crate::described::Described;
use crate::device::lent::Lent;
use crate::dlpack::{self, DataType, Placed, Shaped};
use crate::options::{Given, Keywords};
use crate::tensor::data_type;

/// A tensor in memory of a CUDA or HIP device. Other libraries use it where it is, by `from_dlpack()` or
/// `__cuda_array_interface__`; the memory is freed with the last tensor in it.
#[pyclass(module = "dmabuf_dio", extends = Described, frozen, weakref)]
#[derive(Debug)]
pub(crate) struct DeviceTensor {
    dtype: Dtype,
    byte_order: ByteOrder,
    shape: Vec<u64>,
    len: u64,
    vendor: Vendor,
    ordinal: u32,
    /// `None` for a tensor without bytes.
    memory: Option<Lent<DeviceMemory>>,
    /// In the memory.
    at: u64,
    /// Consumers may write.
    is_writable: bool,
}

impl DeviceTensor {
    pub(crate) fn new(
        py: Python<'_>,
        tensor: &Tensor,
        device: &Device,
        memory: Option<Lent<DeviceMemory>>,
        at: u64,
    ) -> PyResult<Py<Self>> {
        let own = Self {
            dtype: tensor.dtype,
            byte_order: tensor.byte_order,
            shape: tensor.shape.clone(),
            len: tensor.len(),
            vendor: device.vendor(),
            ordinal: device.ordinal(),
            memory: memory.filter(|_| !tensor.is_empty()),
            at,
            is_writable: true,
        };
        own.named(py, &tensor.name)
    }

    /// Memory as bytes.
    pub(crate) fn of_memory(
        py: Python<'_>,
        memory: Lent<DeviceMemory>,
        is_writable: bool,
    ) -> PyResult<Py<Self>> {
        let (vendor, ordinal) = (memory.device().vendor(), memory.device().ordinal());
        let (len, dtype, byte_order) = (memory.len(), Dtype::U8, ByteOrder::Little);
        let (shape, memory) = (vec![len], Some(memory));
        let own =
            Self { dtype, byte_order, shape, len, vendor, ordinal, memory, at: 0, is_writable };
        own.named(py, "")
    }

    fn named(self, py: Python<'_>, name: &str) -> PyResult<Py<Self>> {
        let kind = (self.dtype, self.byte_order);
        let described = Described::new(py, name, kind, &self.shape, self.len)?;
        Py::new(py, PyClassInitializer::from(described).add_subclass(self))
    }

    /// The type for other libraries.
    fn data_type(&self) -> Result<DataType, String> {
        let dtype = data_type(self.dtype)
            .ok_or_else(|| format!("DLPack has no type {}: use torch(), or bytes()", self.dtype))?;
        if self.byte_order == ByteOrder::Big && dtype.bits > 8 {
            return Err("the tensor is big-endian, which DLPack cannot say: use torch()".into());
        }
        Ok(dtype)
    }

    fn address(&self) -> u64 {
        self.memory.as_ref().map_or(0, |memory| memory.address() + self.at)
    }

    fn kind(&self) -> (i32, i32) {
        // kDLCUDA, kDLROCM
        let kind = if self.vendor == Vendor::Hip { 10 } else { 2 };
        (kind, self.ordinal as i32)
    }
}

#[pymethods]
impl DeviceTensor {
    /// The device: `"cuda:0"`, `"hip:0"`.
    #[getter]
    fn device(&self) -> String {
        device_name(self.vendor, self.ordinal)
    }

    /// Whether it is where the disk has put it, in memory that processor and device share.
    #[getter]
    fn mapped(&self) -> bool {
        self.memory.as_ref().is_some_and(|memory| memory.is_mapped())
    }

    /// The address, for the device. 0 for a tensor without bytes.
    #[getter]
    fn data_ptr(&self) -> u64 {
        self.address()
    }

    /// The same memory as bytes, for types that other libraries lack.
    #[pyo3(name = "bytes")]
    fn as_bytes(&self, py: Python<'_>) -> PyResult<Py<Self>> {
        let (dtype, byte_order, shape) = (Dtype::U8, ByteOrder::Little, vec![self.len]);
        Self { dtype, byte_order, shape, memory: self.memory.clone(), ..*self }.named(py, "")
    }

    /// The copies are over before the tensor exists: no stream of the consumer has to wait.
    #[pyo3(signature = (**options))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        options: Option<Keywords<'_>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let given = Given::new("__dlpack__", options);
        let stream: Option<i64> = given.take("stream")?;
        // The array API's rules: 0 is ambiguous with CUDA, 1 and 2 mean nothing with ROCm.
        let is_bad = |stream: i64| match self.vendor {
            Vendor::Hip => stream == 1 || stream == 2 || stream < -1,
            _ => stream == 0 || stream < -1,
        };
        if let Some(stream) = stream.filter(|stream| is_bad(*stream)) {
            let text = format!("stream={stream} is none of {}: pass None", self.vendor);
            return Err(PyValueError::new_err(text));
        }
        let kind = self.kind();
        if given.take("dl_device")?.is_some_and(|device: (i32, i32)| device != kind) {
            let text = format!("the tensor is on {}: dl_device is {kind:?}", self.device());
            return Err(PyBufferError::new_err(text));
        }
        dlpack::no_copy(&given)?;
        let versioned = dlpack::is_versioned(&given)?;
        given.end()?;
        if !versioned && !self.is_writable {
            return Err(PyBufferError::new_err(dlpack::READ_ONLY_TEXT));
        }
        let dtype = self.data_type().map_err(PyBufferError::new_err)?;
        // Null for a tensor without bytes, as dlpack.h wants it.
        let memory = self.memory.clone();
        let shape = self.shape.iter().map(|dimension| *dimension as i64).collect();
        let address = std::ptr::with_exposed_provenance_mut(self.address() as usize);
        let placed =
            Placed { owner: Box::new(memory), address, device: kind, writable: self.is_writable };
        dlpack::hand_over(py, placed, Shaped { offset: 0, shape, dtype }, versioned)
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        self.kind()
    }

    /// Version 3, as `CuPy` and Numba take it. Types that NumPy lacks have none.
    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dtype = self.data_type().ok().and_then(|dtype| Some((letter(dtype.code)?, dtype.bits)));
        let Some((letter, bits)) = dtype else {
            let text = format!("__cuda_array_interface__ has no type {}: use bytes()", self.dtype);
            return Err(PyAttributeError::new_err(text));
        };
        let order = if bits > 8 { '<' } else { '|' };
        let dict = PyDict::new(py);
        dict.set_item("shape", PyTuple::new(py, &self.shape)?)?;
        dict.set_item("typestr", format!("{order}{letter}{}", bits / 8))?;
        dict.set_item("data", (self.address(), !self.is_writable))?;
        dict.set_item("version", 3)?;
        dict.set_item("strides", py.None())?;
        // Nothing has to be waited for.
        dict.set_item("stream", py.None())?;
        Ok(dict)
    }
}

/// `"cuda:0"`, `"hip:0"`.
pub(crate) fn device_name(vendor: Vendor, ordinal: u32) -> String {
    format!("{vendor}:{ordinal}").to_lowercase()
}

/// The letter of a `DLDataTypeCode` in NumPy's types.
fn letter(code: u8) -> Option<char> {
    Some(match code {
        0 => 'i',
        1 => 'u',
        2 => 'f',
        5 => 'c',
        6 => 'b',
        _ => return None,
    })
}
