// SPDX-License-Identifier: MIT OR Apache-2.0
//! A device.

use std::ffi::{CStr, c_int};
use std::fmt;
use std::path::Path;
use std::ptr;
use std::sync::Arc;

use crate::api::{Api, Handle, Status};
use crate::error::{Error, Result};
use crate::vendor::Vendor;

/// `CU_STREAM_CAPTURE_MODE_RELAXED`, `hipStreamCaptureModeRelaxed`.
const RELAXED: c_int = 2;

/// A device: its primary context, which the vendor's runtime and frameworks use, too. Clones are the same device; the
/// context is released with the last of them and what they made. The device that a thread works with stays the same.
///
/// `Send` and `Sync`. A child of `fork(2)` must not use it.
#[derive(Clone)]
pub struct Device {
    shared: Arc<Shared>,
}

struct Shared {
    api: Api,
    ordinal: u32,
    number: c_int,
    /// Null with HIP.
    context: Handle,
}

// SAFETY: a context may be current in several threads.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device")
            .field("vendor", &self.vendor())
            .field("ordinal", &self.ordinal())
            .finish_non_exhaustive()
    }
}

impl Device {
    /// Opens a device by its place among the vendor's, from 0. Blocks while the driver starts, which can take seconds
    /// the first time.
    ///
    /// # Errors
    ///
    /// [`Error::NoDriver`], [`Error::Driver`].
    pub fn open(vendor: Vendor, ordinal: u32) -> Result<Self> {
        Self::of(Api::load(vendor, None)?, ordinal)
    }

    /// Like [`open`](Self::open), with another library that has the functions of the vendor's.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open).
    pub fn open_with(vendor: Vendor, library: &Path, ordinal: u32) -> Result<Self> {
        Self::of(Api::load(vendor, Some(library))?, ordinal)
    }

    fn of(api: Api, ordinal: u32) -> Result<Self> {
        let (mut number, mut context) = (0, ptr::null_mut());
        let check = |status, call| check(&api, ordinal, status, call);
        // SAFETY: the call takes a number, which has to be 0.
        check(unsafe { (api.init)(0) }, "to start")?;
        let place = c_int::try_from(ordinal).unwrap_or(c_int::MAX);
        // SAFETY: stores a number.
        check(unsafe { (api.device)(&raw mut number, place) }, "the device")?;
        // `Shared` ends the use.
        check(api.current.begin(number, &mut context), "its context")?;
        Ok(Self { shared: Arc::new(Shared { api, ordinal, number, context }) })
    }

    /// Whose device it is.
    pub fn vendor(&self) -> Vendor {
        self.shared.api.vendor
    }

    /// Its place among the vendor's, from 0.
    pub fn ordinal(&self) -> u32 {
        self.shared.ordinal
    }

    /// Free and all bytes of its memory.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`].
    pub fn memory(&self) -> Result<(u64, u64)> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: stores two numbers.
        self.call("its memory", |api| unsafe { (api.memory)(&raw mut free, &raw mut total) })?;
        Ok((free as u64, total as u64))
    }

    /// Whether its memory is the host's, as on Jetson, DGX Spark and APUs: [`map`](Self::map) then needs no copy, and
    /// the device reads at full speed.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`].
    pub fn is_integrated(&self) -> Result<bool> {
        let (mut value, number) = (0, self.shared.number);
        let attribute = self.vendor().integrated();
        // SAFETY: stores a number.
        let call = |api: &Api| unsafe { (api.attribute)(&raw mut value, attribute, number) };
        self.call("to say whether it is integrated", call)?;
        Ok(value != 0)
    }

    /// Calls the driver with the context in place. `what` is refused if the call fails.
    pub(crate) fn call(&self, what: &'static str, call: impl FnOnce(&Api) -> Status) -> Result<()> {
        let Shared { api, ordinal, number, context } = &*self.shared;
        let (status, end) = api.current.with((*context, *number), || {
            // No graph that another thread captures has to do with what is ours.
            let mut mode = RELAXED;
            // SAFETY: stores a number.
            let is_relaxed = unsafe { (api.capture_mode)(&raw mut mode) } == 0;
            let status = call(api);
            if is_relaxed {
                // SAFETY: as above.
                unsafe { (api.capture_mode)(&raw mut mode) };
            }
            status
        });
        check(api, *ordinal, status, what)?;
        check(api, *ordinal, end, "its context")
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Nothing that was made with the device is left, as all of it refers to `Shared`.
        self.api.current.end(self.number);
    }
}

fn check(api: &Api, ordinal: u32, status: Status, call: &'static str) -> Result<()> {
    if status == 0 {
        return Ok(());
    }
    let mut text = ptr::null();
    // SAFETY: stores the address of a static text, or null.
    unsafe { (api.error_text)(status, &raw mut text) };
    let text = if text.is_null() {
        format!("error {status}")
    } else {
        // SAFETY: the driver's text ends with a zero and is never freed.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    };
    Err(Error::Driver { vendor: api.vendor, ordinal, call, status, text })
}
