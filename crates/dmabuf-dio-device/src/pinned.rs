// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of the host that is registered with a device.

use std::ffi::c_void;
use std::mem::ManuallyDrop;

use rustix::param::page_size;

use crate::api::Api;
use crate::device::Device;
use crate::error::Result;

/// `CU_MEMHOSTREGISTER_DEVICEMAP`, `hipHostRegisterMapped`.
const MAPPED: u32 = 2;

/// Memory that is registered as long as this exists, and its owner. Nothing may be copied from it when it is dropped.
#[derive(Debug)]
pub(crate) struct Pinned<T> {
    device: Device,
    owner: ManuallyDrop<T>,
    /// The first of its pages.
    start: *mut c_void,
    /// Where the memory is, in bytes from there.
    offset: u64,
    is_lost: bool,
}

// SAFETY: the address is that of memory of the owner.
unsafe impl<T: Send> Send for Pinned<T> {}
// SAFETY: shared references change nothing.
unsafe impl<T: Sync> Sync for Pinned<T> {}

impl<T> Pinned<T> {
    /// `is_mapped`: the device may use the memory itself, not only copy from it.
    ///
    /// # Safety
    ///
    /// `length` bytes at `first` are mapped as long as the owner exists, which may be moved.
    pub(crate) unsafe fn new(
        device: &Device,
        owner: T,
        (first, length): (*mut u8, usize),
        is_mapped: bool,
    ) -> Result<Self> {
        // Drivers pin whole pages.
        let offset = first.addr() % page_size();
        let length = (offset + length).next_multiple_of(page_size());
        let start = first.wrapping_sub(offset).cast();
        let flags = if is_mapped { MAPPED } else { 0 };
        // SAFETY: the memory is mapped in whole pages, and stays until `Pinned` has unregistered it.
        let register = |api: &Api| unsafe { (api.register)(start, length, flags) };
        device.call("to pin memory", register)?;
        let (device, owner) = (device.clone(), ManuallyDrop::new(owner));
        Ok(Self { device, owner, start, offset: offset as u64, is_lost: false })
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
            // SAFETY: dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.owner) };
        }
    }
}
