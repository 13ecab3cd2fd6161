// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads files into the memory of CUDA and HIP devices.
//!
//! A [`StagingRing`] has blocks of huge pages that are registered with the device's driver once. [`StagingRing::load`] reads
//! ranges of files into one block by direct I/O while the device copies the blocks before it to their places. No byte
//! goes through the page cache, and the memory of the host that is used is the ring.
//!
//! The driver's library is loaded when a [`Device`] is opened: nothing is linked, and a machine without it gets
//! [`Error::NoDriver`].
//!
//! ```no_run
//! # fn main() -> Result<(), dmabuf_dio_device::Error> {
//! use dmabuf_dio_device::{Device, Place, StagingRing, Vendor};
//!
//! let device = Device::open(Vendor::Cuda, 0)?;
//! let file = std::fs::File::open("model.bin").expect("a file");
//! let memory = device.alloc(1 << 30)?;
//! let mut ring = StagingRing::new(&device, StagingRing::DEFAULT)?;
//! let place = Place::new(&file, 4096..4096 + (1 << 30), &memory, 0)?;
//! let report = ring.load(&[place], None, &dmabuf_dio::CancelToken::new())?;
//! println!("{} bytes read, {} copied", report.read, report.copied);
//! # Ok(())
//! # }
//! ```
//!
//! Where the device's memory is the host's, [`Device::is_integrated`], [`Device::map`] lends it private memory that a file
//! was loaded into: nothing is copied, and the bytes are in the machine once.
//!
//! All lengths and offsets are in bytes.

#![cfg(target_os = "linux")]

mod api;
mod block;
mod current;
mod device;
mod error;
mod memory;
mod pinned;
mod plan;
mod ring;
mod stream;
mod vendor;

pub use device::Device;
pub use error::{Error, Result};
pub use memory::DeviceMemory;
pub use plan::Place;
pub use ring::{DeviceReport, StagingRing};
pub use stream::ForeignStream;
pub use vendor::Vendor;
