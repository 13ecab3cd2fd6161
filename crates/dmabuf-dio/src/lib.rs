// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads files into dma-bufs, and saves them, with no copy by the CPU.
//!
//! A file of gigabytes that an accelerator, a camera, a radio or another process is to use has to
//! be in memory that all of them can reach: a dma-buf. [`Loader`] puts it there by direct I/O,
//! from the storage device into the pages of the buffer, in the best way that this kernel offers,
//! and says in its [`Report`] which way that was and what it cost.
//!
//! ```no_run
//! # fn main() -> Result<(), dmabuf_dio::Error> {
//! use dmabuf_dio::{Loader, Saver};
//!
//! let loaded = Loader::new("model.safetensors").load()?;
//! println!("{} bytes by {}, {}", loaded.len, loaded.report.backend, loaded.report.mode);
//!
//! // The descriptor goes to whatever imports it: a GPU, a camera, another process.
//! let fd = std::os::fd::AsFd::as_fd(&loaded.buf);
//! # let _ = fd;
//!
//! Saver::new("copy").save(&loaded.buf, loaded.range())?;
//! # Ok(())
//! # }
//! ```
//!
//! | module | what is in it |
//! |---|---|
//! | [`buf`], [`map`] | [`DmaBuf`], the buffer, and views of its content |
//! | [`load`], [`save`] | [`Loader`] and [`Saver`] |
//! | [`gather`] | [`Gatherer`](gather::Gatherer): many small pieces of a file at once |
//! | [`private`] | [`Private`], what was loaded into memory of this process alone |
//! | [`backend`] | [`Backend`], the ways to move the bytes, and [`Refusal`], why one is not available |
//! | [`stream`] | blocks of samples from a device to another, to a file, to the network |
//! | [`control`] | [`Progress`] and [`CancelToken`] |
//! | [`report`] | [`Report`], what was done in truth |
//! | [`probe`] | what this kernel, its devices and a file offer |
//! | [`error`], [`errno`] | [`Error`] and [`Errno`] |
//!
//! All lengths and offsets are in bytes. All calls block until they are done. Nothing is kept
//! between calls but what a value of this library owns, and nothing in the process is changed by
//! them.

#![cfg(target_os = "linux")]

pub mod backend;
pub mod buf;
pub mod control;
pub mod errno;
pub mod error;
pub mod gather;
pub mod load;
pub mod map;
pub mod memory;
pub mod private;
pub mod probe;
pub mod report;
pub mod save;
pub mod stream;

// The code in the README is compiled as the documentation's is.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

mod available;
mod bracket;
mod extent;
mod file;
mod heap;
mod measure;
mod node;
mod options;
mod queue;
mod raw;
mod run;
mod shared;
mod target;
mod threads;
mod uring;
mod via;

pub use backend::{Backend, NotLent, Refusal};
pub use buf::{DmaBuf, Kind};
pub use control::{CancelToken, Progress};
pub use errno::Errno;
pub use error::{Direction, Error, Result};
pub use load::{Loaded, Loader};
pub use map::{Map, MapMut};
pub use memory::PageSizes;
pub use private::Private;
pub use report::{Mode, Report};
pub use save::Saver;

const _: () = assert!(size_of::<usize>() == size_of::<u64>(), "needs a 64-bit system");
