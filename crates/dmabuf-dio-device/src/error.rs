// SPDX-License-Identifier: MIT OR Apache-2.0
//! The errors.

use crate::vendor::Vendor;

/// `CUDA_ERROR_OUT_OF_MEMORY`, `hipErrorOutOfMemory`.
pub(crate) const OUT_OF_MEMORY: i32 = 2;
/// `CUDA_ERROR_NOT_INITIALIZED`, `hipErrorNotInitialized`.
const NOT_INITIALIZED: i32 = 3;

/// `Result` with this library's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error. `Display` is one line that says what failed; [`hint`](Error::hint) is one line that says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The library of the driver cannot be loaded.
    #[error("there is no {vendor} driver: {}", reasons.join("; "))]
    NoDriver {
        /// Whose.
        vendor: Vendor,
        /// Why not, for each name of it.
        reasons: Vec<String>,
    },
    /// The device has too little free memory. Nothing is allocated.
    #[error("{vendor} device {ordinal} has {free} of {total} bytes free: {wanted} are wanted")]
    NoDeviceMemory {
        /// Whose device.
        vendor: Vendor,
        /// Which.
        ordinal: u32,
        /// The bytes that were wanted.
        wanted: u64,
        /// The bytes that are free.
        free: u64,
        /// All bytes.
        total: u64,
    },
    /// The driver refuses a call. No copy of the load is in flight any more, unless the device is lost.
    #[error("{vendor} device {ordinal} refuses {call}: {text}")]
    Driver {
        /// Whose device.
        vendor: Vendor,
        /// Which.
        ordinal: u32,
        /// What for, such as "to copy".
        call: &'static str,
        /// The number of the error: `CUresult` or `hipError_t`.
        status: i32,
        /// What the driver says of it.
        text: String,
    },
    /// The ring is too small to have two blocks of the page size.
    #[error("a ring of {bytes} bytes is too small: it needs at least {least}")]
    SmallRing {
        /// Its bytes.
        bytes: u64,
        /// The bytes of the smallest ring.
        least: u64,
    },
    /// A range is reversed, or longer than the room that its place has.
    #[error("{length} bytes at {offset} do not fit at {at} of {room} bytes")]
    NoPlace {
        /// The offset in the file or the memory.
        offset: u64,
        /// The length.
        length: u64,
        /// The offset in the device's memory.
        at: u64,
        /// The length of that memory.
        room: u64,
    },
    /// The device can only map private memory.
    #[error("the device cannot map a buffer of the kind {kind}")]
    NotPrivate {
        /// The kind of the buffer.
        kind: dmabuf_dio::Kind,
    },
    /// Reading the file, or getting memory of the host, failed. No copy is in flight any more.
    #[error(transparent)]
    Host(#[from] dmabuf_dio::Error),
}

impl Error {
    /// What to do.
    pub fn hint(&self) -> String {
        match self {
            Self::NoDriver { vendor, .. } => {
                format!("install the {vendor} driver, or load to the host's memory")
            }
            Self::NoDeviceMemory { .. } => "free memory of the device, or load less".into(),
            Self::Driver { status: NOT_INITIALIZED, .. } => {
                "a child of fork(2) cannot use a driver that its parent has started: spawn it instead".into()
            }
            Self::Driver { .. } => "see dmesg and the driver's documentation of the number".into(),
            Self::SmallRing { .. } => "choose more; the default is 256 MiB".into(),
            Self::NoPlace { .. } => "allocate as many bytes as the range has".into(),
            Self::NotPrivate { .. } => "load with Kind::Private".into(),
            Self::Host(error) => error.hint().to_string(),
        }
    }
}
