// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of a device, and memory of the host that a device uses.

use std::fmt;

use dmabuf_dio::Buffer;

use crate::api::Api;
use crate::device::Device;
use crate::error::{Error, OUT_OF_MEMORY, Result};
use crate::pinned::{Access, Pinned, Wanted};

/// `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED`, `hipErrorStreamCaptureUnsupported`.
const CAPTURED: i32 = 900;

/// Memory that a device uses: its own, or the host's. All work of the device is waited for before it is freed, as a
/// framework that it was lent to may have left some. Drivers refuse that while a stream of the device is captured for a
/// graph, and end the capture: the memory is never freed then.
///
/// `Send` and `Sync`. A child of `fork(2)` must not drop it.
pub struct DeviceMemory {
    device: Device,
    address: u64,
    length: u64,
    /// `None`: the device's own.
    host: Option<Pinned<Box<dyn Send + Sync>>>,
}

impl fmt::Debug for DeviceMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceMemory")
            .field("device", &self.device)
            .field("address", &self.address)
            .field("length", &self.length)
            .field("is_mapped", &self.is_mapped())
            .finish_non_exhaustive()
    }
}

impl DeviceMemory {
    /// The address, for the device and for calls of its driver.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Whether it is memory of the host, lent by [`Device::map`] or
    /// [`Device::map_memory`].
    pub fn is_mapped(&self) -> bool {
        self.host.is_some()
    }
}

impl Device {
    /// Allocates memory of the device, with undefined content. No bytes are at address 0.
    ///
    /// # Errors
    ///
    /// [`Error::NoDeviceMemory`], [`Error::Driver`].
    pub fn alloc(&self, length: u64) -> Result<DeviceMemory> {
        if length == 0 {
            // CUDA refuses it.
            return Ok(DeviceMemory { device: self.clone(), address: 0, length, host: None });
        }
        let mut address = 0;
        let size = usize::try_from(length).unwrap_or(usize::MAX);
        // SAFETY: stores an address. `DeviceMemory` frees the memory.
        let call = |api: &Api| unsafe { (api.alloc)(&raw mut address, size) };
        match self.call("memory", call) {
            Err(Error::Driver { status: OUT_OF_MEMORY, vendor, ordinal, .. }) => {
                let (free, total) = self.memory()?;
                Err(Error::NoDeviceMemory { vendor, ordinal, wanted: length, free, total })
            }
            Err(error) => Err(error),
            Ok(()) => Ok(DeviceMemory { device: self.clone(), address, length, host: None }),
        }
    }

    /// Lets the device use [`Private`](dmabuf_dio::Kind::Private) memory where it is, by pinning it; the content is
    /// that of the buffer. No byte is copied. A device with memory of its own reads it at the speed of its bus. Children of
    /// `fork(2)` do not get the memory, which the kernel would copy for them.
    ///
    /// # Errors
    ///
    /// [`Error::NotPrivate`], [`Error::Driver`]: the buffer is freed.
    pub fn map(&self, mut buffer: Buffer) -> Result<DeviceMemory> {
        let kind = buffer.kind();
        let bytes = buffer.bytes_mut().ok_or(Error::NotPrivate { kind })?;
        let (first, length) = (bytes.as_mut_ptr(), bytes.len());
        let wanted = Wanted { first, length, access: Access::Map, is_ours: true };
        // SAFETY: private memory consists of pages that stay as long as the buffer.
        unsafe { self.map_wanted(buffer, wanted) }
    }

    /// The same for other memory, such as a mapping of a memfd, and what keeps it. The memory of a dma-buf cannot be
    /// pinned.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`], as when one of the pages is registered already: the owner is dropped.
    ///
    /// # Safety
    ///
    /// `length` bytes at `first` are mapped, in whole pages, as long as the owner exists, which may be moved.
    /// `is_writable`: the pages are mapped for writing, and work of the device may write; no work does otherwise.
    pub unsafe fn map_memory(
        &self,
        owner: impl Send + Sync + 'static,
        first: *mut u8,
        length: usize,
        is_writable: bool,
    ) -> Result<DeviceMemory> {
        let access = if is_writable { Access::Map } else { Access::MapReadOnly };
        // SAFETY: the caller's promise.
        unsafe { self.map_wanted(owner, Wanted { first, length, access, is_ours: false }) }
    }

    /// # Safety
    ///
    /// As for `map_memory`.
    unsafe fn map_wanted(
        &self,
        owner: impl Send + Sync + 'static,
        wanted: Wanted,
    ) -> Result<DeviceMemory> {
        if wanted.length == 0 {
            return self.alloc(0);
        }
        let owner: Box<dyn Send + Sync> = Box::new(owner);
        // SAFETY: the caller's promise.
        let host = unsafe { Pinned::new(self, owner, wanted) }?;
        let (address, length) = (host.device_address()?, wanted.length as u64);
        Ok(DeviceMemory { device: self.clone(), address, length, host: Some(host) })
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if self.length == 0 {
            return;
        }
        // SAFETY: the call takes nothing.
        let over = self.device.call("to finish", |api: &Api| unsafe { (api.context_wait)() });
        if matches!(over, Err(Error::Driver { status: CAPTURED, .. })) {
            // The device goes on, perhaps with this memory.
            std::mem::forget(self.host.take());
            return;
        }
        match &mut self.host {
            // What the device still does with it is not known.
            Some(host) if over.is_err() => host.lose(),
            Some(_) => (),
            None => {
                // SAFETY: allocated once, and nothing uses it: by the wait, or as the device is lost.
                let _ =
                    self.device.call("to free memory", |api| unsafe { (api.free)(self.address) });
            }
        }
    }
}
