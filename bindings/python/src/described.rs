// SPDX-License-Identifier: MIT OR Apache-2.0
//! The entry of a tensor in a header, as plain objects, which Python reads without a call.

use dmabuf_dio_tensors::{ByteOrder, Dtype};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyString, PyTuple};

use crate::lock::Lock;

/// The common base of `TensorInfo` and `Tensor`.
#[pyclass(module = "dmabuf_dio", name = "_Described", frozen, subclass, get_all)]
#[derive(Debug)]
pub(crate) struct Described {
    name: Py<PyString>,
    /// The name of the type in its format's spelling: `"BF16"`, `"Q4_K"`.
    dtype: Py<PyString>,
    /// Elements in each dimension, the outermost first.
    shape: Py<PyTuple>,
    /// Length in bytes.
    nbytes: Py<PyInt>,
    /// Elements and bytes of the smallest unit of the type: `(1, 2)` for BF16, `(256, 144)` for `Q4_K`.
    block: Py<PyTuple>,
    /// `"little"`, or `"big"` in a big-endian GGUF file.
    byte_order: Py<PyString>,
}

impl Described {
    pub(crate) fn new(
        py: Python<'_>,
        name: &str,
        (dtype, byte_order): (Dtype, ByteOrder),
        shape: &[u64],
        len: u64,
    ) -> PyResult<Self> {
        let (dtype, block) = kind(py, dtype)?;
        let byte_order = match byte_order {
            ByteOrder::Big => intern!(py, "big"),
            ByteOrder::Little => intern!(py, "little"),
        };
        Ok(Self {
            name: PyString::new(py, name).unbind(),
            dtype,
            shape: PyTuple::new(py, shape)?.unbind(),
            nbytes: len.into_pyobject(py)?.unbind(),
            block,
            byte_order: byte_order.clone().unbind(),
        })
    }
}

/// The name of a type, and its block.
type Kind = (Py<PyString>, Py<PyTuple>);

/// Made once.
fn kind(py: Python<'_>, dtype: Dtype) -> PyResult<Kind> {
    static KINDS: Lock<Vec<(Dtype, Kind)>> = Lock::new(Vec::new());
    if let Some((_, (name, block))) = KINDS.lock().iter().find(|(known, _)| *known == dtype) {
        return Ok((name.clone_ref(py), block.clone_ref(py)));
    }
    let name = PyString::intern(py, dtype.name()).unbind();
    let block = (dtype.block().elements, dtype.block().bytes).into_pyobject(py)?.unbind();
    KINDS.lock().push((dtype, (name.clone_ref(py), block.clone_ref(py))));
    Ok((name, block))
}

#[pymethods]
impl Described {
    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let (class, own) = (slf.get_type().name()?, slf.get());
        Ok(format!(
            "<dmabuf_dio.{class}: {:?}, {}, {}>",
            own.name.bind(slf.py()),
            own.dtype,
            own.shape
        ))
    }
}

/// The description of a tensor in its header.
#[pyclass(module = "dmabuf_dio", extends = Described, frozen, get_all)]
#[derive(Debug)]
pub(crate) struct TensorInfo {
    /// Index of the file in `Model.files`.
    file: Py<PyInt>,
    /// Offset in the file, in bytes.
    offset: Py<PyInt>,
}

impl TensorInfo {
    pub(crate) fn of(py: Python<'_>, tensor: &dmabuf_dio_tensors::Tensor) -> PyResult<Py<Self>> {
        let kind = (tensor.dtype, tensor.byte_order);
        let described = Described::new(py, &tensor.name, kind, &tensor.shape, tensor.len())?;
        let file = tensor.file.into_pyobject(py)?.unbind();
        let offset = tensor.range.start.into_pyobject(py)?.unbind();
        Py::new(py, PyClassInitializer::from(described).add_subclass(Self { file, offset }))
    }
}

#[pymethods]
impl TensorInfo {
    #[new]
    fn new(
        name: Py<PyString>,
        dtype: Py<PyString>,
        shape: Py<PyTuple>,
        nbytes: Py<PyInt>,
        block: Py<PyTuple>,
        byte_order: Py<PyString>,
        file: Py<PyInt>,
        offset: Py<PyInt>,
    ) -> PyClassInitializer<Self> {
        let described = Described { name, dtype, shape, nbytes, block, byte_order };
        PyClassInitializer::from(described).add_subclass(Self { file, offset })
    }

    /// The arguments of `new`, for pickle.
    fn __getnewargs__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let names = ["name", "dtype", "shape", "nbytes", "block", "byte_order", "file", "offset"];
        let values = names.iter().map(|name| slf.getattr(name));
        PyTuple::new(slf.py(), values.collect::<PyResult<Vec<_>>>()?)
    }
}
