// SPDX-License-Identifier: MIT OR Apache-2.0
//! `_load_to_device`: tensors of a model, into memory of a device that a framework has allocated.

use std::path::PathBuf;
use std::sync::Arc;

use dmabuf_dio::CancelToken;
use dmabuf_dio_device::{Device, DeviceReport, Error, ForeignStream, Place, StagingRing, Vendor};
use dmabuf_dio_tensors::Model;
use pyo3::exceptions::{PyIndexError, PyMemoryError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::{note, raise};
use crate::model;
use crate::run::{self, Watch};

/// Loads tensors, each to an address in memory of a device: pairs of its place among `keys()` and the address.
/// `stream`: the framework's, whose work the copies wait for. `library`: in place of the vendor's.
#[pyfunction(name = "_load_to_device")]
#[pyo3(signature = (model, targets, vendor, ordinal, stream, ring = None, library = None))]
pub(crate) fn load_to_device<'py>(
    py: Python<'py>,
    model: &model::Model,
    targets: Vec<(usize, u64)>,
    vendor: &str,
    ordinal: u32,
    stream: usize,
    ring: Option<u64>,
    library: Option<PathBuf>,
) -> PyResult<Bound<'py, PyDict>> {
    let vendor = match vendor {
        "cuda" => Vendor::Cuda,
        "hip" => Vendor::Hip,
        _ => return Err(PyValueError::new_err("the vendor is \"cuda\" or \"hip\"")),
    };
    let model = Arc::clone(model.shared());
    if targets.iter().any(|(number, _)| *number >= model.tensors().len()) {
        return Err(PyIndexError::new_err("there is no such tensor"));
    }
    let load = move |control: &run::Control| {
        let device = match library {
            Some(path) => Device::open_with(vendor, &path, ordinal),
            None => Device::open(vendor, ordinal),
        }?;
        load(&model, &targets, &device, stream, ring, &control.cancel)
    };
    let report = run::call(py, &Watch::default(), load)?.map_err(|error| failed(py, &error))?;
    let dict = PyDict::new(py);
    dict.set_item("read", report.read)?;
    dict.set_item("copied", report.copied)?;
    dict.set_item("reads", report.reads)?;
    dict.set_item("read_seconds", report.read_seconds)?;
    dict.set_item("device_seconds", report.device_seconds)?;
    Ok(dict)
}

fn load(
    model: &Model,
    targets: &[(usize, u64)],
    device: &Device,
    stream: usize,
    ring: Option<u64>,
    cancel: &CancelToken,
) -> Result<DeviceReport, Error> {
    let place = |&(number, address): &(usize, u64)| {
        let tensor = &model.tensors()[number];
        let file = model.files()[tensor.file].file();
        // SAFETY: the caller in Python has just allocated the memory for this tensor, and keeps it.
        unsafe { Place::at_address(file, tensor.range.clone(), address) }
    };
    let places: Vec<_> = targets.iter().map(place).collect();
    let bytes: u64 = targets.iter().map(|(number, _)| model.tensors()[*number].len()).sum();
    // Pinning more than is loaded would only take time.
    let enough =
        bytes.next_multiple_of(StagingRing::LEAST).clamp(StagingRing::LEAST, StagingRing::DEFAULT);
    let mut ring = StagingRing::new(device, ring.unwrap_or(enough))?;
    // SAFETY: the current stream of the framework, which keeps it.
    let stream = unsafe { ForeignStream::new(stream) };
    ring.load(&places, Some(stream), cancel)
}

fn failed(py: Python<'_>, error: &Error) -> PyErr {
    let exception = match error {
        Error::Host(error) => return raise(py, error),
        Error::NoDeviceMemory { .. } => PyMemoryError::new_err(error.to_string()),
        Error::SmallRing { .. } | Error::NoPlace { .. } => PyValueError::new_err(error.to_string()),
        _ => PyRuntimeError::new_err(error.to_string()),
    };
    note(py, &exception, &error.hint());
    exception
}
