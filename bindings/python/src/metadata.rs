// SPDX-License-Identifier: MIT OR Apache-2.0
//! The keys and values of a model's header.

use dmabuf_dio_tensors::{Array, Metadata, Value};
use pyo3::IntoPyObjectExt as _;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

pub(crate) fn as_dict<'py>(py: Python<'py>, metadata: &Metadata) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (key, value) in metadata.iter() {
        dict.set_item(key, as_object(py, value)?)?;
    }
    Ok(dict)
}

fn as_object<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::U8(number) => number.into_bound_py_any(py)?,
        Value::I8(number) => number.into_bound_py_any(py)?,
        Value::U16(number) => number.into_bound_py_any(py)?,
        Value::I16(number) => number.into_bound_py_any(py)?,
        Value::U32(number) => number.into_bound_py_any(py)?,
        Value::I32(number) => number.into_bound_py_any(py)?,
        Value::U64(number) => number.into_bound_py_any(py)?,
        Value::I64(number) => number.into_bound_py_any(py)?,
        Value::F32(number) => number.into_bound_py_any(py)?,
        Value::F64(number) => number.into_bound_py_any(py)?,
        Value::Bool(value) => value.into_bound_py_any(py)?,
        Value::String(text) => text.into_bound_py_any(py)?,
        Value::Bytes(bytes) => PyBytes::new(py, bytes).into_any(),
        Value::Array(array) => as_list(py, array)?.into_any(),
        _ => py.None().into_bound(py),
    })
}

/// `str`, or `bytes` where they are not UTF-8.
fn string<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    Ok(match std::str::from_utf8(bytes) {
        Ok(text) => text.into_bound_py_any(py)?,
        Err(_) => PyBytes::new(py, bytes).into_any(),
    })
}

fn as_list<'py>(py: Python<'py>, array: &Array) -> PyResult<Bound<'py, PyList>> {
    match array {
        // PyO3 makes bytes of bytes.
        Array::U8(items) => PyList::new(py, items.iter().map(|item| u32::from(*item))),
        Array::I8(items) => PyList::new(py, items),
        Array::U16(items) => PyList::new(py, items),
        Array::I16(items) => PyList::new(py, items),
        Array::U32(items) => PyList::new(py, items),
        Array::I32(items) => PyList::new(py, items),
        Array::U64(items) => PyList::new(py, items),
        Array::I64(items) => PyList::new(py, items),
        Array::F32(items) => PyList::new(py, items),
        Array::F64(items) => PyList::new(py, items),
        Array::Bool(items) => PyList::new(py, items),
        Array::String(items) => {
            let items = items.iter().map(|item| string(py, item));
            PyList::new(py, items.collect::<PyResult<Vec<_>>>()?)
        }
        _ => Ok(PyList::empty(py)),
    }
}
