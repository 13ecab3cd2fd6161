// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tensors for other libraries, by DLPack 1.0 (dlpack.h). A tensor counts as a view of its buffer
//! until the consumer calls the deleter, in whatever thread and with or without the interpreter.

use std::ffi::{CStr, c_void};
use std::ptr::{self, NonNull};

use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::buffer::Buffer;
use crate::content::View;
use crate::view::place;

/// `kDLCPU`, and the number of the device.
pub(crate) const CPU: (i32, i32) = (1, 0);
/// `DLPACK_FLAG_BITMASK_READ_ONLY`.
const READ_ONLY: u64 = 1;
const VERSION: Version = Version { major: 1, minor: 0 };

/// Names of a capsule: of the struct that it holds, and once that was consumed.
const VERSIONED: &CStr = c"dltensor_versioned";
const LEGACY: &CStr = c"dltensor";

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
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Self)>,
}

/// `DLManagedTensorVersioned`
#[repr(C)]
struct ManagedVersioned {
    version: Version,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Self)>,
    flags: u64,
    tensor: Tensor,
}

/// What lives as long as the consumer's tensor.
struct Held {
    #[allow(dead_code, reason = "dropped by the deleter")]
    view: View,
    shape: Box<[i64]>,
    strides: Box<[i64]>,
}

/// The arguments of `__dlpack__`.
#[derive(Debug)]
pub(crate) struct Export<'py> {
    pub(crate) stream: Option<Bound<'py, PyAny>>,
    pub(crate) max_version: Option<(u32, u32)>,
    pub(crate) device: Option<(i32, i32)>,
    pub(crate) copy: Option<bool>,
}

/// What to hand out: a C-contiguous tensor at `offset` bytes of the content.
#[derive(Debug)]
pub(crate) struct Shaped<'a> {
    pub(crate) offset: u64,
    pub(crate) shape: Vec<i64>,
    pub(crate) dtype: DataType,
    /// What an exception calls it.
    pub(crate) name: &'a str,
}

/// A capsule for a tensor, which a consumer takes over.
pub(crate) fn export<'py>(
    py: Python<'py>,
    buffer: &Buffer,
    what: Shaped<'_>,
    wanted: &Export<'py>,
) -> PyResult<Bound<'py, PyCapsule>> {
    if wanted.stream.as_ref().is_some_and(|stream| !stream.is_none()) {
        return Err(PyValueError::new_err("stream must be None: the tensor is in CPU memory"));
    }
    if wanted.device.is_some_and(|device| device != CPU) {
        return Err(PyBufferError::new_err("the tensor is in CPU memory: dl_device is (1, 0)"));
    }
    if wanted.copy == Some(true) {
        return Err(PyBufferError::new_err("no copy is made: copy what from_dlpack() returns"));
    }
    let versioned = wanted.max_version.is_some_and(|(major, _)| major >= VERSION.major);
    let writable = buffer.content()?.is_writable();
    if !versioned && !writable {
        return Err(PyBufferError::new_err(
            "the buffer is read-only, which this consumer's version of DLPack cannot say: \
             load it with writable=True",
        ));
    }
    let label = format!("{} for DLPack{}", what.name, place(py));
    let view = buffer.begin_view(py, label, false)?;
    let first = py.detach(|| view.open()).map_err(|trouble| trouble.raise(py))?;
    let mut strides: Vec<i64> = vec![1; what.shape.len()];
    for axis in (1..what.shape.len()).rev() {
        strides[axis - 1] = strides[axis] * what.shape[axis].max(1);
    }
    let mut held = Box::new(Held { view, shape: what.shape.into(), strides: strides.into() });
    let tensor = Tensor {
        // SAFETY: the caller's range lies in the content.
        data: unsafe { first.0.add(what.offset as usize) }.as_ptr().cast(),
        device: Device { kind: CPU.0, number: CPU.1 },
        ndim: held.shape.len() as i32,
        dtype: what.dtype,
        shape: held.shape.as_mut_ptr(),
        strides: held.strides.as_mut_ptr(),
        byte_offset: 0,
    };
    let context = Box::into_raw(held).cast();
    if versioned {
        let flags = if writable { 0 } else { READ_ONLY };
        let deleter = Some(delete_versioned as unsafe extern "C" fn(*mut ManagedVersioned));
        let managed = ManagedVersioned { version: VERSION, context, deleter, flags, tensor };
        capsule(py, managed, VERSIONED, destroy_versioned)
    } else {
        let deleter = Some(delete as unsafe extern "C" fn(*mut Managed));
        capsule(py, Managed { tensor, context, deleter }, LEGACY, destroy)
    }
}

fn capsule<'py, T>(
    py: Python<'py>,
    managed: T,
    name: &'static CStr,
    destroy: ffi::PyCapsule_Destructor,
) -> PyResult<Bound<'py, PyCapsule>> {
    let managed = NonNull::from(Box::leak(Box::new(managed))).cast();
    // SAFETY: the pointer is valid until the deleter runs; an unconsumed capsule runs it.
    unsafe { PyCapsule::new_with_pointer_and_destructor(py, managed, name, Some(destroy)) }
}

/// The pointer in a capsule that nobody consumed: consumers rename it.
///
/// # Safety
///
/// `object` is a capsule in its destructor.
unsafe fn unconsumed<T>(object: *mut ffi::PyObject, name: &CStr) -> Option<NonNull<T>> {
    // SAFETY: the caller passes a capsule; a wrong name is no error of this call.
    unsafe {
        if ffi::PyCapsule_IsValid(object, name.as_ptr()) == 0 {
            return None;
        }
        NonNull::new(ffi::PyCapsule_GetPointer(object, name.as_ptr()).cast())
    }
}

unsafe extern "C" fn destroy_versioned(object: *mut ffi::PyObject) {
    // SAFETY: this is the destructor of our capsule, which nobody consumed.
    unsafe {
        if let Some(managed) = unconsumed(object, VERSIONED) {
            delete_versioned(managed.as_ptr());
        }
    }
}

unsafe extern "C" fn destroy(object: *mut ffi::PyObject) {
    // SAFETY: as above.
    unsafe {
        if let Some(managed) = unconsumed(object, LEGACY) {
            delete(managed.as_ptr());
        }
    }
}

unsafe extern "C" fn delete_versioned(managed: *mut ManagedVersioned) {
    // SAFETY: called once, with the pointer that `export` made.
    unsafe { free(ptr::NonNull::new(managed), |managed| managed.context) };
}

unsafe extern "C" fn delete(managed: *mut Managed) {
    // SAFETY: as above.
    unsafe { free(ptr::NonNull::new(managed), |managed| managed.context) };
}

/// Frees a managed tensor and what it held.
///
/// # Safety
///
/// The pointer, if there is one, and its context come from `export`, and are not used again.
unsafe fn free<T>(managed: Option<NonNull<T>>, context: impl FnOnce(&T) -> *mut c_void) {
    let Some(managed) = managed else { return };
    // SAFETY: both were leaked by `export`.
    unsafe {
        let managed = Box::from_raw(managed.as_ptr());
        drop(Box::from_raw(context(&managed).cast::<Held>()));
    }
}
