// SPDX-License-Identifier: MIT OR Apache-2.0
//! Streams, in which copies happen one after the other, and events, which tell how far they are.

use std::ffi::c_void;
use std::ptr;

use crate::api::{Api, Handle};
use crate::device::Device;
use crate::error::Result;

/// `CU_STREAM_NON_BLOCKING`, `hipStreamNonBlocking`: it does not wait for the default stream.
const NON_BLOCKING: u32 = 1;
/// `CU_EVENT_DISABLE_TIMING`, `hipEventDisableTiming`: the cheapest event.
const NO_TIMING: u32 = 2;

/// A stream of the caller, such as the current one of a framework.
#[derive(Clone, Copy, Debug)]
pub struct ForeignStream(usize);

impl ForeignStream {
    /// A stream by its handle, `cudaStream_t` or `hipStream_t`, as a number; 0 is the default stream.
    ///
    /// # Safety
    ///
    /// The stream is one of the device that it is used with, and is not destroyed before the load is over.
    pub unsafe fn new(handle: usize) -> Self {
        Self(handle)
    }
}

/// A stream of our own.
#[derive(Debug)]
pub(crate) struct Stream {
    device: Device,
    handle: Handle,
}

/// A mark in a stream.
#[derive(Debug)]
pub(crate) struct Event {
    device: Device,
    handle: Handle,
}

// SAFETY: the driver's handles may be used in any thread.
unsafe impl Send for Stream {}
// SAFETY: and in several at a time ("CUDA Driver API", Thread safety; HIP's is the same).
unsafe impl Sync for Stream {}
// SAFETY: as above.
unsafe impl Send for Event {}

impl Stream {
    pub(crate) fn new(device: &Device) -> Result<Self> {
        let mut handle = ptr::null_mut();
        // SAFETY: stores a handle, which is destroyed once, with `Stream`.
        let create = |api: &Api| unsafe { (api.stream_create)(&raw mut handle, NON_BLOCKING) };
        device.call("a stream", create)?;
        Ok(Self { device: device.clone(), handle })
    }

    /// Lets everything that is added later wait for what is in another stream now.
    pub(crate) fn begin_after(&self, other: ForeignStream) -> Result<()> {
        let event = Event::new(&self.device)?;
        let other = ptr::with_exposed_provenance_mut(other.0);
        self.device.call("to wait for a stream", |api| {
            // SAFETY: the stream is one of the device, by the promise of `ForeignStream::new`.
            match unsafe { (api.event_record)(event.handle, other) } {
                // SAFETY: both exist. The event may be destroyed before it is over: the wait stays.
                0 => unsafe { (api.stream_after)(self.handle, event.handle, 0) },
                status => status,
            }
        })
    }

    /// Adds a copy to the device.
    ///
    /// # Safety
    ///
    /// `length` bytes at `source` are registered, and neither change nor go before the copy is over; `address` is memory
    /// of the device that may be overwritten.
    pub(crate) unsafe fn copy(&self, address: u64, source: *const u8, length: u64) -> Result<()> {
        let (source, size) = (source.cast::<c_void>(), length as usize);
        // SAFETY: the caller's promise.
        let copy = |api: &Api| unsafe { (api.copy)(address, source, size, self.handle) };
        self.device.call("to copy", copy)
    }

    /// Waits until all that was added is over.
    pub(crate) fn wait(&self) -> Result<()> {
        // SAFETY: the stream exists.
        self.device.call("to finish", |api| unsafe { (api.stream_wait)(self.handle) })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: created once. What is in it still comes to its end.
        let _ = self.device.call("", |api| unsafe { (api.stream_destroy)(self.handle) });
    }
}

impl Event {
    pub(crate) fn new(device: &Device) -> Result<Self> {
        let mut handle = ptr::null_mut();
        // SAFETY: stores a handle, which is destroyed once, with `Event`.
        let create = |api: &Api| unsafe { (api.event_create)(&raw mut handle, NO_TIMING) };
        device.call("an event", create)?;
        Ok(Self { device: device.clone(), handle })
    }

    /// Is over once all that is in the stream now is.
    pub(crate) fn record(&self, stream: &Stream) -> Result<()> {
        // SAFETY: both exist.
        let record = |api: &Api| unsafe { (api.event_record)(self.handle, stream.handle) };
        self.device.call("to record an event", record)
    }

    pub(crate) fn wait(&self) -> Result<()> {
        // SAFETY: the event exists.
        self.device.call("to finish", |api| unsafe { (api.event_wait)(self.handle) })
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: created once.
        let _ = self.device.call("", |api| unsafe { (api.event_destroy)(self.handle) });
    }
}
