// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of the host that is registered with a device.

use std::ffi::c_void;
use std::mem::ManuallyDrop;

use rustix::mm::{Advice, madvise};
use rustix::param::page_size;

use crate::api::{Api, Status};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::vendor::Vendor;

/// `CU_MEMHOSTREGISTER_DEVICEMAP`, `hipHostRegisterMapped`.
const MAPPED: u32 = 2;
/// `CU_MEMHOSTREGISTER_READ_ONLY`. With HIP this bit means that the memory is coarse-grained.
const READ_ONLY: u32 = 8;
/// `CUDA_ERROR_NOT_SUPPORTED`.
const NOT_SUPPORTED: Status = 801;

/// Memory to register, and what for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) first: *mut u8,
    pub(crate) length: usize,
    pub(crate) access: Access,
    /// The process itself does not need it in a child of fork(2), which would get a copy of each pinned page at once.
    pub(crate) is_ours: bool,
}

/// What the device does with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// It copies from it.
    Copy,
    /// It uses it where it is.
    Map,
    /// The same, and does not write to it.
    MapReadOnly,
}

/// Memory that is registered as long as this exists, and its owner. Nothing may be copied from it when it is dropped.
#[derive(Debug)]
pub(crate) struct Pinned<T> {
    device: Device,
    owner: ManuallyDrop<T>,
    /// The first of its pages.
    start: *mut c_void,
    /// Where the memory is, in bytes from there.
    offset: u64,
    /// The bytes of its pages, if children do not get it.
    unforked: usize,
    is_lost: bool,
}

// SAFETY: the address is that of memory of the owner.
unsafe impl<T: Send> Send for Pinned<T> {}
// SAFETY: shared references change nothing.
unsafe impl<T: Sync> Sync for Pinned<T> {}

impl<T> Pinned<T> {
    /// # Safety
    ///
    /// The memory is mapped as long as the owner exists, which may be moved; for writing, except if it is only read.
    pub(crate) unsafe fn new(device: &Device, owner: T, wanted: Wanted) -> Result<Self> {
        let Wanted { first, length, access, is_ours } = wanted;
        // Drivers pin whole pages.
        let offset = first.addr() % page_size();
        let length = (offset + length).next_multiple_of(page_size());
        let start: *mut c_void = first.wrapping_sub(offset).cast();
        let register = |flags| {
            // SAFETY: the memory is mapped in whole pages, and stays until `Pinned` has unregistered it.
            let call = |api: &Api| unsafe { (api.register)(start, length, flags) };
            device.call("to pin memory", call)
        };
        match access {
            Access::Copy => register(0)?,
            Access::MapReadOnly if device.vendor() == Vendor::Cuda => {
                match register(MAPPED | READ_ONLY) {
                    // Pages that the processor may write can be had without.
                    Err(Error::Driver { status: NOT_SUPPORTED, .. }) => register(MAPPED)?,
                    registered => registered?,
                }
            }
            Access::Map | Access::MapReadOnly => register(MAPPED)?,
        }
        // SAFETY: the pages are the owner's, and a child does nothing with them.
        let is_left = is_ours && unsafe { madvise(start, length, Advice::LinuxDontFork) }.is_ok();
        let unforked = if is_left { length } else { 0 };
        let (device, owner) = (device.clone(), ManuallyDrop::new(owner));
        Ok(Self { device, owner, start, offset: offset as u64, unforked, is_lost: false })
    }

    /// The address of the memory for the device.
    pub(crate) fn device_address(&self) -> Result<u64> {
        let mut address = 0;
        // SAFETY: registered with `MAPPED`; stores an address. The flags have to be 0.
        let call = |api: &Api| unsafe { (api.device_address)(&raw mut address, self.start, 0) };
        self.device.call("to map memory", call)?;
        Ok(address + self.offset)
    }

    pub(crate) fn owner(&self) -> &T {
        &self.owner
    }

    pub(crate) fn owner_mut(&mut self) -> &mut T {
        &mut self.owner
    }

    /// The device may still use the memory, which is never freed.
    pub(crate) fn lose(&mut self) {
        self.is_lost = true;
    }
}

impl<T> Drop for Pinned<T> {
    fn drop(&mut self) {
        // SAFETY: registered once, and nothing is copied from it.
        let end = self.device.call("", |api| unsafe { (api.unregister)(self.start) });
        if end.is_ok() && !self.is_lost {
            if self.unforked > 0 {
                // SAFETY: the pages are still the owner's. The allocator may use them next.
                let _ = unsafe { madvise(self.start, self.unforked, Advice::LinuxDoFork) };
            }
            // SAFETY: dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.owner) };
        }
    }
}
