// SPDX-License-Identifier: MIT OR Apache-2.0
//! `_Device`: loads to the memory of a CUDA or HIP device.

mod lent;
pub(crate) mod tensor;

use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use dmabuf_dio::{CancelToken, Kind, Loader};
use dmabuf_dio_device::{
    DeviceMemory, DeviceReport, Error, ForeignStream, Place, StagingRing, Vendor,
};
use dmabuf_dio_tensors::{Model, Reader as Shared, Tensor};
use pyo3::exceptions::{PyIndexError, PyMemoryError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::buffer::Buffer;
use crate::content::{Address, View};
use crate::error::{note, raise, raise_tensors};
use crate::reader::Reader;
use crate::run::{self, Watch};
use crate::{cancel, model, view};
use lent::Lent;
use tensor::DeviceTensor;

/// Each tensor begins at a multiple of so many bytes, as `cuMemAlloc` promises for memory.
const ALIGNMENT: u64 = 256;
/// Kernels read so many bytes at once: their framework's memory is aligned to more, and no type to more than this.
const WIDEST: u64 = 16;
/// Bytes between two tensors that stay in memory with them.
const GAP: u64 = 256 << 10;

/// A device, and a ring that is registered with it as long as this exists.
#[pyclass(module = "dmabuf_dio", name = "_Device", frozen, weakref)]
#[derive(Debug)]
pub(crate) struct Device {
    shared: Lent<OneDevice>,
}

#[derive(Debug)]
struct OneDevice {
    device: dmabuf_dio_device::Device,
    is_integrated: bool,
    /// With the bytes that it was made for.
    ring: Mutex<Option<(u64, StagingRing)>>,
}

/// What may go wrong.
enum Failure {
    Device(Error),
    Tensors(dmabuf_dio_tensors::Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Device(error)
    }
}

impl From<dmabuf_dio_tensors::Error> for Failure {
    fn from(error: dmabuf_dio_tensors::Error) -> Self {
        Self::Tensors(error)
    }
}

impl Failure {
    fn raise(&self, py: Python<'_>) -> PyErr {
        match self {
            Self::Device(error) => failed(py, error),
            Self::Tensors(error) => raise_tensors(py, error),
        }
    }
}

#[pymethods]
impl Device {
    /// `library`: in place of the vendor's.
    #[new]
    #[pyo3(signature = (vendor, ordinal, library = None))]
    fn new(py: Python<'_>, vendor: &str, ordinal: u32, library: Option<PathBuf>) -> PyResult<Self> {
        let vendor = match vendor {
            "cuda" => Vendor::Cuda,
            "hip" => Vendor::Hip,
            _ => return Err(PyValueError::new_err("the vendor is \"cuda\" or \"hip\"")),
        };
        let open = move |_: &run::Control| {
            let device = match library {
                Some(path) => dmabuf_dio_device::Device::open_with(vendor, &path, ordinal),
                None => dmabuf_dio_device::Device::open(vendor, ordinal),
            }?;
            let is_integrated = device.is_integrated()?;
            Ok(OneDevice { device, is_integrated, ring: Mutex::default() })
        };
        let shared = run::call(py, &Watch::default(), open)?.map_err(|error| failed(py, &error))?;
        Ok(Self { shared: Lent::new(shared) })
    }

    /// Whether its memory is the host's.
    #[getter]
    fn integrated(&self) -> bool {
        self.shared.is_integrated
    }

    /// Loads bytes of tensors to addresses in memory of the device: the tensor's place among `keys()`, its bytes from
    /// the first to the last, and the address. `stream`: the framework's, whose work the copies wait for. `total`: the
    /// bytes of this load and those that follow.
    #[pyo3(signature = (model, targets, stream, total, cancel = None))]
    fn load<'py>(
        &self,
        py: Python<'py>,
        model: &model::Model,
        targets: Vec<(usize, (u64, u64), u64)>,
        stream: usize,
        total: u64,
        cancel: Option<PyRef<'py, cancel::CancelToken>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let model = Arc::clone(model.shared());
        for (number, (start, end), _) in &targets {
            let tensor = model.tensors().get(*number);
            if tensor.is_none_or(|tensor| start > end || *end > tensor.len()) {
                return Err(PyIndexError::new_err("there is no such tensor"));
            }
        }
        let load = move |device: &OneDevice, cancel: &CancelToken| {
            device.load(&model, &targets, (stream, total), cancel)
        };
        let report = self.call(py, cancel.map(|token| token.0.clone()), load)?;
        describe(py, &report)
    }

    /// Tensors of a reader, by their places in it, in memory of this library: one allocation for all of them. `total`: as
    /// for `load`.
    #[pyo3(signature = (reader, numbers, total, cancel = None))]
    fn own<'py>(
        &self,
        py: Python<'py>,
        reader: &Reader,
        numbers: Vec<usize>,
        total: u64,
        cancel: Option<PyRef<'py, cancel::CancelToken>>,
    ) -> PyResult<(Vec<Py<DeviceTensor>>, Bound<'py, PyDict>)> {
        let shared = reader.shared();
        let known = shared.tensors().len();
        if numbers.iter().any(|number| *number >= known) {
            return Err(PyIndexError::new_err("there is no such tensor"));
        }
        let reader = Arc::clone(&shared);
        let load = move |device: &OneDevice, cancel: &CancelToken| {
            let (memory, places, report) = device.own(&reader, &numbers, total, cancel)?;
            Ok((memory.map(Lent::new), places, report, numbers))
        };
        let cancel = cancel.map(|token| token.0.clone());
        let (memory, places, report, numbers) = self.call(py, cancel, load)?;
        let made = numbers.into_iter().zip(places).map(|(number, place)| {
            DeviceTensor::new(
                py,
                &shared.tensors()[number],
                &self.shared.device,
                memory.clone(),
                place,
            )
        });
        Ok((made.collect::<PyResult<_>>()?, describe(py, &report)?))
    }

    /// The content of a buffer, copied to the device.
    fn copy(&self, py: Python<'_>, buffer: &Buffer) -> PyResult<Py<DeviceTensor>> {
        let device = &self.shared.device;
        let name = tensor::device_name(device.vendor(), device.ordinal());
        let label = format!("a tensor on {name}{}", view::place(py));
        let view = buffer.begin_view(py, label, false)?;
        let first = py.detach(|| view.open()).map_err(|trouble| trouble.raise(py))?;
        let load = move |device: &OneDevice, cancel: &CancelToken| {
            let memory = device.copy(view, first, cancel)?;
            Ok(Lent::new(memory))
        };
        let memory = self.call(py, None, load)?;
        let is_writable = !memory.is_mapped() || buffer.content()?.is_writable();
        DeviceTensor::of_memory(py, memory, is_writable)
    }
}

impl Device {
    /// Makes a call that blocks.
    fn call<T: Send + 'static>(
        &self,
        py: Python<'_>,
        cancel: Option<CancelToken>,
        load: impl FnOnce(&OneDevice, &CancelToken) -> Result<T, Failure> + Send + 'static,
    ) -> PyResult<T> {
        if !self.shared.is_ours() {
            let text = "a device of the parent process: spawn processes in place of fork()";
            return Err(PyRuntimeError::new_err(text));
        }
        let shared = self.shared.share();
        let watch = Watch { cancel, ..Watch::default() };
        let loaded = run::call(py, &watch, move |control| load(&shared, &control.cancel))?;
        loaded.map_err(|failure| failure.raise(py))
    }
}

impl OneDevice {
    /// Uses the ring, which is as long as a load of `bytes` needs.
    fn with_ring<T>(
        &self,
        bytes: u64,
        load: impl FnOnce(&mut StagingRing) -> Result<T, Error>,
    ) -> Result<T, Error> {
        // Pinning more than is loaded would only take time.
        let wanted = bytes.next_multiple_of(StagingRing::LEAST);
        let wanted = wanted.clamp(StagingRing::LEAST, StagingRing::DEFAULT);
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        // A smaller one goes before the next is pinned.
        let kept = ring.take().filter(|(bytes, _)| *bytes >= wanted);
        let (_, ring) = match kept {
            Some(kept) => ring.insert(kept),
            None => ring.insert((wanted, StagingRing::new(&self.device, wanted)?)),
        };
        load(ring)
    }

    fn load(
        &self,
        model: &Model,
        targets: &[(usize, (u64, u64), u64)],
        (stream, total): (usize, u64),
        cancel: &CancelToken,
    ) -> Result<DeviceReport, Failure> {
        let place = |&(number, (start, end), address): &(usize, (u64, u64), u64)| {
            let tensor = &model.tensors()[number];
            let file = model.files()[tensor.file].origin();
            let range = tensor.range.start + start..tensor.range.start + end;
            // SAFETY: the caller in Python has just allocated the memory for these bytes, and keeps it.
            unsafe { Place::at_address(file, range, address) }
        };
        let places: Vec<_> = targets.iter().map(place).collect();
        // SAFETY: the current stream of the framework, which keeps it.
        let stream = unsafe { ForeignStream::new(stream) };
        Ok(self.with_ring(total, |ring| ring.load(&places, Some(stream), cancel))?)
    }

    /// Tensors in memory of ours, and where each is.
    fn own(
        &self,
        reader: &Shared,
        numbers: &[usize],
        total: u64,
        cancel: &CancelToken,
    ) -> Result<(Option<DeviceMemory>, Vec<u64>, DeviceReport), Failure> {
        let tensors: Vec<_> = numbers.iter().map(|&number| &reader.tensors()[number]).collect();
        if self.is_integrated {
            if let Some(range) = run_of(&tensors) {
                match self.map(reader.model(), &tensors, range, cancel) {
                    // What cannot be pinned is copied.
                    Err(Failure::Device(Error::Driver { .. })) => (),
                    done => return done,
                }
            }
        }
        let mut length = 0_u64;
        let mut places = Vec::with_capacity(tensors.len());
        for tensor in &tensors {
            places.push(length);
            length = (length + tensor.len()).next_multiple_of(ALIGNMENT);
        }
        if length == 0 {
            return Ok((None, places, DeviceReport::default()));
        }
        let memory = self.device.alloc(length)?;
        let files = reader.model().files();
        let targets = tensors.iter().zip(&places);
        let whole = targets.filter(|(tensor, _)| tensor.is_contiguous() && !tensor.is_empty());
        let whole = whole.map(|(tensor, at)| {
            Place::new(files[tensor.file].origin(), tensor.range.clone(), &memory, *at)
        });
        let whole = whole.collect::<Result<Vec<_>, _>>()?;
        let mut report = self.with_ring(total, |ring| ring.load(&whole, None, cancel))?;
        for ((&number, tensor), &at) in numbers.iter().zip(&tensors).zip(&places) {
            if tensor.is_contiguous() {
                continue;
            }
            // Gathered by the host first
            let Some(gathered) = reader.get(number, cancel)? else { continue };
            let place = Place::of_bytes(gathered.bytes().unwrap_or_default(), &memory, at)?;
            report += self.with_ring(total, |ring| ring.load(&[place], None, cancel))?;
        }
        Ok((Some(memory), places, report))
    }

    /// Tensors that stay where the disk has put them.
    fn map(
        &self,
        model: &Model,
        tensors: &[&Tensor],
        (file, range): (usize, Range<u64>),
        cancel: &CancelToken,
    ) -> Result<(Option<DeviceMemory>, Vec<u64>, DeviceReport), Failure> {
        let (start, length) = (range.start, range.end - range.start);
        let loader = Loader::from(model.files()[file].origin()).offset(start).length(length);
        let loader = loader.kind(Kind::Private).cancel(cancel.clone());
        let memory = self.device.map(loader.load().map_err(Error::from)?)?;
        let places = tensors.iter().map(|tensor| tensor.range.start.saturating_sub(start));
        let mut report = DeviceReport::default();
        report.read = length;
        report.reads = 1;
        Ok((Some(memory), places.collect(), report))
    }

    /// The content of a buffer: where it is, or copied.
    fn copy(
        &self,
        view: View,
        first: Address,
        cancel: &CancelToken,
    ) -> Result<DeviceMemory, Failure> {
        let len = view.content().len() as usize;
        let view = Arc::new(view);
        if self.is_integrated {
            let (owner, is_writable) = (Arc::clone(&view), view.content().is_writable());
            // SAFETY: the view keeps its content mapped.
            let mapped =
                unsafe { self.device.map_memory(owner, first.0.as_ptr(), len, is_writable) };
            // The memory of a dma-buf cannot be pinned, nor pages that are already.
            if let Ok(mapped) = mapped {
                return Ok(mapped);
            }
        }
        let memory = self.device.alloc(len as u64)?;
        // SAFETY: as above; nothing writes to it as long as the view exists.
        let bytes = unsafe { std::slice::from_raw_parts(first.0.as_ptr(), len) };
        let place = Place::of_bytes(bytes, &memory, 0)?;
        self.with_ring(len as u64, |ring| ring.load(&[place], None, cancel))?;
        Ok(memory)
    }
}

/// The file and the range of tensors that lie next to each other in one file, each at a multiple of `WIDEST`. `None` if
/// they do not, or have no bytes.
fn run_of(tensors: &[&Tensor]) -> Option<(usize, Range<u64>)> {
    let mut run: Option<(usize, Range<u64>)> = None;
    for tensor in tensors.iter().filter(|tensor| !tensor.is_empty()) {
        let (file, start) = (tensor.file, tensor.range.start);
        let mut first = start;
        if let Some((known, range)) = &run {
            let gap = start.checked_sub(range.end)?;
            if file != *known || gap > GAP {
                return None;
            }
            first = range.start;
        }
        if !tensor.is_contiguous() || start % WIDEST != 0 {
            return None;
        }
        run = Some((file, first..tensor.range.end));
    }
    run
}

fn describe<'py>(py: Python<'py>, report: &DeviceReport) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("read", report.read)?;
    dict.set_item("copied", report.copied)?;
    dict.set_item("reads", report.reads)?;
    dict.set_item("read_seconds", report.read_seconds)?;
    dict.set_item("device_seconds", report.device_seconds)?;
    Ok(dict)
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
