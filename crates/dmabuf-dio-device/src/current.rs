// SPDX-License-Identifier: MIT OR Apache-2.0
//! The device that the calls of a thread are for. A thread of a framework has one of its own, which stays.

use std::ffi::{c_int, c_void};
use std::ptr;

use libloading::os::unix::Library;

use crate::vendor::Vendor;

/// What every function returns: 0, or the number of an error.
pub(crate) type Status = c_int;
/// A context, a stream or an event.
pub(crate) type Handle = *mut c_void;

/// How a thread changes its device.
pub(crate) enum Current {
    /// By a stack of contexts.
    Cuda {
        retain: unsafe extern "C" fn(*mut Handle, c_int) -> Status,
        release: unsafe extern "C" fn(c_int) -> Status,
        push: unsafe extern "C" fn(Handle) -> Status,
        pop: unsafe extern "C" fn(*mut Handle) -> Status,
    },
    /// By its number. `hipCtxPopCurrent` does not bring back the device that was there before.
    Hip {
        get: unsafe extern "C" fn(*mut c_int) -> Status,
        set: unsafe extern "C" fn(c_int) -> Status,
    },
}

impl Current {
    pub(crate) fn of(vendor: Vendor, library: &Library) -> Result<Self, libloading::Error> {
        // SAFETY: the functions of these names have these parameters, by the references.
        unsafe {
            Ok(match vendor {
                Vendor::Cuda => Self::Cuda {
                    retain: *library.get(b"cuDevicePrimaryCtxRetain\0")?,
                    release: *library.get(b"cuDevicePrimaryCtxRelease_v2\0")?,
                    push: *library.get(b"cuCtxPushCurrent_v2\0")?,
                    pop: *library.get(b"cuCtxPopCurrent_v2\0")?,
                },
                Vendor::Hip => Self::Hip {
                    get: *library.get(b"hipGetDevice\0")?,
                    set: *library.get(b"hipSetDevice\0")?,
                },
            })
        }
    }

    /// Begins to use a device. Stores its primary context, which the vendor's runtime uses, too; nothing with HIP. Needs an
    /// `end`.
    pub(crate) fn begin(&self, number: c_int, context: &mut Handle) -> Status {
        match self {
            // SAFETY: stores a handle.
            Self::Cuda { retain, .. } => unsafe { retain(context, number) },
            Self::Hip { .. } => 0,
        }
    }

    /// Nothing that was made with the device may be left.
    pub(crate) fn end(&self, number: c_int) {
        if let Self::Cuda { release, .. } = self {
            // SAFETY: retained once, by `begin`.
            unsafe { release(number) };
        }
    }

    /// Makes a call for a device: its context and number. Returns how the call and how the change of the device end.
    pub(crate) fn with(
        &self,
        (context, number): (Handle, c_int),
        call: impl FnOnce() -> Status,
    ) -> (Status, Status) {
        match self {
            Self::Cuda { push, pop, .. } => {
                let mut popped = ptr::null_mut();
                // SAFETY: the context lives until `end`.
                match unsafe { push(context) } {
                    // SAFETY: stores the handle of the context that was pushed.
                    0 => (call(), unsafe { pop(&raw mut popped) }),
                    refused => (0, refused),
                }
            }
            Self::Hip { get, set } => {
                let mut before = number;
                // SAFETY: stores a number, and takes that of a device.
                match unsafe { (get(&raw mut before), set(number)) } {
                    // SAFETY: the device that it was.
                    (0, 0) => (call(), unsafe { set(before) }),
                    (0, refused) | (refused, _) => (0, refused),
                }
            }
        }
    }
}
