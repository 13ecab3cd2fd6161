// SPDX-License-Identifier: MIT OR Apache-2.0
//! The functions of a driver's library. CUDA's and HIP's have the same parameters: handles and addresses are as long
//! as a pointer.
//!
//! Sources: the CUDA Driver API reference, and the HIP runtime API reference.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::current::Current;
pub(crate) use crate::current::{Handle, Status};
use crate::error::{Error, Result};
use crate::vendor::Vendor;

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident($($argument:ty),*) = $cuda:literal, $hip:literal;)*) => {
        /// The functions. Their library is never unloaded: a driver has threads that run its code.
        pub(crate) struct Api {
            pub(crate) vendor: Vendor,
            pub(crate) current: Current,
            $($(#[$doc])* pub(crate) $name: unsafe extern "C" fn($($argument),*) -> Status,)*
        }

        impl Api {
            fn of(vendor: Vendor, library: Library) -> std::result::Result<Self, libloading::Error> {
                $(
                    let name: &[u8] = match vendor {
                        Vendor::Cuda => $cuda,
                        Vendor::Hip => $hip,
                    };
                    // SAFETY: the function of this name has these parameters, by the reference.
                    let $name = *unsafe { library.get(name) }?;
                )*
                let current = Current::of(vendor, &library)?;
                let _ = library.into_raw();
                Ok(Self { vendor, current, $($name,)* })
            }
        }
    };
}

functions! {
    init(c_uint) = b"cuInit\0", b"hipInit\0";
    /// The number of a device by its place among all.
    device(*mut c_int, c_int) = b"cuDeviceGet\0", b"hipDeviceGet\0";
    /// One of its attributes by number, which the vendors count differently.
    attribute(*mut c_int, c_int, c_int) = b"cuDeviceGetAttribute\0", b"hipDeviceGetAttribute\0";
    /// Which calls of this thread are refused, and end a capture, while a stream is captured: the mode, and the one before.
    capture_mode(*mut c_int) = b"cuThreadExchangeStreamCaptureMode\0", b"hipThreadExchangeStreamCaptureMode\0";
    /// Waits for all work of the device.
    context_wait() = b"cuCtxSynchronize\0", b"hipDeviceSynchronize\0";
    /// Free and all bytes of the device's memory.
    memory(*mut usize, *mut usize) = b"cuMemGetInfo_v2\0", b"hipMemGetInfo\0";
    alloc(*mut u64, usize) = b"cuMemAlloc_v2\0", b"hipMalloc\0";
    free(u64) = b"cuMemFree_v2\0", b"hipFree\0";
    /// Pins memory of the process. It must not be freed before `unregister`.
    register(*mut c_void, usize, c_uint) = b"cuMemHostRegister_v2\0", b"hipHostRegister\0";
    unregister(*mut c_void) = b"cuMemHostUnregister\0", b"hipHostUnregister\0";
    /// The device's address of memory that is registered with `MAPPED`.
    device_address(*mut u64, *mut c_void, c_uint) = b"cuMemHostGetDevicePointer_v2\0", b"hipHostGetDevicePointer\0";
    /// Begins a copy to the device. The source must not change before the copy is over, which the stream tells.
    copy(u64, *const c_void, usize, Handle) = b"cuMemcpyHtoDAsync_v2\0", b"hipMemcpyHtoDAsync\0";
    stream_create(*mut Handle, c_uint) = b"cuStreamCreate\0", b"hipStreamCreateWithFlags\0";
    stream_destroy(Handle) = b"cuStreamDestroy_v2\0", b"hipStreamDestroy\0";
    /// Waits for all work of a stream.
    stream_wait(Handle) = b"cuStreamSynchronize\0", b"hipStreamSynchronize\0";
    /// Lets later work of a stream wait for an event.
    stream_after(Handle, Handle, c_uint) = b"cuStreamWaitEvent\0", b"hipStreamWaitEvent\0";
    event_create(*mut Handle, c_uint) = b"cuEventCreate\0", b"hipEventCreateWithFlags\0";
    event_destroy(Handle) = b"cuEventDestroy_v2\0", b"hipEventDestroy\0";
    /// The event is over once all work of the stream up to here is.
    event_record(Handle, Handle) = b"cuEventRecord\0", b"hipEventRecord\0";
    event_wait(Handle) = b"cuEventSynchronize\0", b"hipEventSynchronize\0";
    error_text(Status, *mut *const c_char) = b"cuGetErrorString\0", b"hipDrvGetErrorString\0";
}

// SAFETY: the functions may be called from any thread.
unsafe impl Send for Api {}
// SAFETY: as above.
unsafe impl Sync for Api {}

impl Api {
    /// Loads the vendor's library, or the one at `path`.
    pub(crate) fn load(vendor: Vendor, path: Option<&Path>) -> Result<Self> {
        let (stem, names) = match vendor {
            Vendor::Cuda => ("libcuda.so", &["libcuda.so.1"][..]),
            // By the version of the ROCm release, the newest first.
            Vendor::Hip => {
                ("libamdhip64", &["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so"][..])
            }
        };
        let paths = match path.map(Path::to_owned).or_else(|| loaded(stem)) {
            Some(path) => vec![path],
            None => names.iter().map(PathBuf::from).collect(),
        };
        let mut reasons = Vec::new();
        for path in paths {
            // SAFETY: the caller's or the vendor's library, whose initialisers the process trusts.
            let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
            match library.and_then(|library| Self::of(vendor, library)) {
                Ok(api) => return Ok(api),
                Err(error) => reasons.push(error.to_string()),
            }
        }
        Err(Error::NoDriver { vendor, reasons })
    }
}

/// The file of a library that the process has, by the beginning of its name. torch's package has HIP's under a name of
/// its own; a second runtime beside it would know neither its streams nor its memory.
fn loaded(stem: &str) -> Option<PathBuf> {
    let maps = std::fs::read("/proc/self/maps").ok()?;
    let maps = String::from_utf8_lossy(&maps);
    let mut paths = maps.lines().filter_map(|line| line.find('/').map(|at| &line[at..]));
    let is_it = |path: &&str| {
        let name = path.rsplit('/').next().unwrap_or_default();
        name.starts_with(stem) && name.contains(".so") && !name.ends_with(" (deleted)")
    };
    paths.find(is_it).map(PathBuf::from)
}
