// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tensors for other libraries, by DLPack 1.0 (dlpack.h). A tensor counts as a view of its buffer
//! until the consumer calls the deleter, in whatever thread and with or without the interpreter.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::content::View;
use crate::options::{Given, Keywords};
use crate::view::place;

/// `kDLCPU`, and the number of the device.
pub(crate) const CPU: (i32, i32) = (1, 0);
/// `DLPACK_FLAG_BITMASK_READ_ONLY`.
const READ_ONLY: u64 = 1;
pub(crate) const READ_ONLY_TEXT: &str = "the buffer is read-only, which this consumer's version of DLPack cannot say: \
     load it with writable=True";
const VERSION: Version = Version { major: 1, minor: 0 };

/// `DLPackVersion`
#[repr(C)]
#[derive(Clone, Copy)]
struct Version {
    major: u32,
    minor: u32,
}

/// `DLDevice`
#[repr(C)]
#[derive(Clone, Copy)]
struct Device {
    kind: i32,
    number: i32,
}

/// `DLDataType`
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DataType {
    /// `DLDataTypeCode`
    pub(crate) code: u8,
    pub(crate) bits: u8,
    pub(crate) lanes: u16,
}

impl DataType {
    /// `uint8`
    pub(crate) const BYTE: Self = Self { code: 1, bits: 8, lanes: 1 };
}

/// `DLTensor`
#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device: Device,
    ndim: i32,
    dtype: DataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// `DLManagedTensor`
#[repr(C)]
struct Managed {
    tensor: Tensor,
    context: *mut Held,
    deleter: Option<unsafe extern "C" fn(*mut Self)>,
}

/// `DLManagedTensorVersioned`
#[repr(C)]
struct ManagedVersioned {
    version: Version,
    context: *mut Held,
    deleter: Option<unsafe extern "C" fn(*mut Self)>,
    flags: u64,
    tensor: Tensor,
}

/// Objects that live as long as the consumer's tensor.
struct Held {
    #[allow(dead_code, reason = "dropped by the deleter")]
    owner: Box<dyn Send>,
    shape: Box<[i64]>,
    strides: Box<[i64]>,
}

/// A C-contiguous tensor at `offset` bytes of the content.
#[derive(Debug)]
pub(crate) struct Shaped {
    pub(crate) offset: u64,
    pub(crate) shape: Vec<i64>,
    pub(crate) dtype: DataType,
}

/// Memory, and what keeps it.
pub(crate) struct Placed {
    pub(crate) owner: Box<dyn Send>,
    pub(crate) address: *mut u8,
    /// `DLDevice`
    pub(crate) device: (i32, i32),
    pub(crate) writable: bool,
}

/// The name in exceptions of a view that becomes a tensor.
pub(crate) fn label(py: Python<'_>, name: &str) -> String {
    format!("{name} for DLPack{}", place(py))
}

/// A capsule for a tensor, which a consumer takes over. `options`: the arguments of `__dlpack__`.
pub(crate) fn export<'py>(
    py: Python<'py>,
    view: View,
    what: Shaped,
    options: Option<Keywords<'_>>,
) -> PyResult<Bound<'py, PyCapsule>> {
    let given = Given::new("__dlpack__", options);
    if given.take::<Bound<'_, PyAny>>("stream")?.is_some() {
        return Err(PyValueError::new_err("stream must be None: the tensor is in CPU memory"));
    }
    if given.take("dl_device")?.is_some_and(|device: (i32, i32)| device != CPU) {
        return Err(PyBufferError::new_err("the tensor is in CPU memory: dl_device is (1, 0)"));
    }
    no_copy(&given)?;
    let versioned = is_versioned(&given)?;
    given.end()?;
    let writable = view.content().is_writable();
    if !versioned && !writable {
        return Err(PyBufferError::new_err(READ_ONLY_TEXT));
    }
    let first = py.detach(|| view.open()).map_err(|trouble| trouble.raise(py))?;
    let (owner, address) = (Box::new(view), first.0.as_ptr());
    hand_over(py, Placed { owner, address, device: CPU, writable }, what, versioned)
}

/// Refuses a request for a copy.
pub(crate) fn no_copy(given: &Given<'_>) -> PyResult<()> {
    match given.take("copy")? {
        Some(true) => {
            Err(PyBufferError::new_err("no copy is made: copy what from_dlpack() returns"))
        }
        _ => Ok(()),
    }
}

/// Whether the consumer knows `DLManagedTensorVersioned`.
pub(crate) fn is_versioned(given: &Given<'_>) -> PyResult<bool> {
    let version: Option<(u32, u32)> = given.take("max_version")?;
    Ok(version.is_some_and(|(major, _)| major >= VERSION.major))
}

/// A capsule for a tensor in memory that stays as long as its owner.
pub(crate) fn hand_over<'py>(
    py: Python<'py>,
    placed: Placed,
    what: Shaped,
    versioned: bool,
) -> PyResult<Bound<'py, PyCapsule>> {
    let Placed { owner, address, device: (kind, number), writable } = placed;
    let mut strides: Vec<i64> = vec![1; what.shape.len()];
    for axis in (1..what.shape.len()).rev() {
        strides[axis - 1] = strides[axis] * what.shape[axis].max(1);
    }
    let mut held = Box::new(Held { owner, shape: what.shape.into(), strides: strides.into() });
    let tensor = Tensor {
        // The caller's range lies in the memory, which may be the device's.
        data: address.wrapping_add(what.offset as usize).cast(),
        device: Device { kind, number },
        ndim: held.shape.len() as i32,
        dtype: what.dtype,
        shape: held.shape.as_mut_ptr(),
        strides: held.strides.as_mut_ptr(),
        byte_offset: 0,
    };
    let context = Box::into_raw(held);
    if versioned {
        let flags = if writable { 0 } else { READ_ONLY };
        let deleter = Some(delete::<ManagedVersioned> as _);
        capsule(py, ManagedVersioned { version: VERSION, context, deleter, flags, tensor })
    } else {
        capsule(py, Managed { tensor, context, deleter: Some(delete::<Managed> as _) })
    }
}

/// A struct of dlpack.h that a capsule holds.
trait Handed {
    /// The name of the capsule, until a consumer renames it.
    const NAME: &'static CStr;

    /// The objects that it holds, from `Box::into_raw`.
    fn held(&self) -> *mut Held;
}

impl Handed for Managed {
    const NAME: &'static CStr = c"dltensor";
    fn held(&self) -> *mut Held {
        self.context
    }
}

impl Handed for ManagedVersioned {
    const NAME: &'static CStr = c"dltensor_versioned";
    fn held(&self) -> *mut Held {
        self.context
    }
}

fn capsule<T: Handed>(py: Python<'_>, managed: T) -> PyResult<Bound<'_, PyCapsule>> {
    let managed = NonNull::from(Box::leak(Box::new(managed))).cast();
    let destroy = Some(destroy::<T> as ffi::PyCapsule_Destructor);
    // SAFETY: the pointer is valid until the deleter runs; an unconsumed capsule runs it.
    unsafe { PyCapsule::new_with_pointer_and_destructor(py, managed, T::NAME, destroy) }
}

/// The destructor of a capsule. Deletes an unconsumed tensor: consumers rename the capsule.
unsafe extern "C" fn destroy<T: Handed>(object: *mut ffi::PyObject) {
    // SAFETY: this is the destructor of our capsule; a wrong name is no error of this call.
    unsafe {
        if ffi::PyCapsule_IsValid(object, T::NAME.as_ptr()) != 0 {
            delete::<T>(ffi::PyCapsule_GetPointer(object, T::NAME.as_ptr()).cast());
        }
    }
}

/// Frees a struct and what it held.
unsafe extern "C" fn delete<T: Handed>(managed: *mut T) {
    if managed.is_null() {
        return;
    }
    // SAFETY: called once, with the pointer that `capsule` leaked; `export` leaked what it held.
    unsafe {
        let managed = Box::from_raw(managed);
        drop(Box::from_raw(managed.held()));
    }
}
