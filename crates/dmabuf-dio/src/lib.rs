// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads files into dma-bufs and saves them, without CPU copies.
//!
//! Before an accelerator, a camera, a radio or another process can use a large file, the file must
//! be in memory that all of them can access: a dma-buf. [`Loader`] reads it by direct I/O, from the
//! storage device into the pages of the buffer, with the best method that this kernel offers. Its
//! [`Report`] says which method was used and what it cost.
//!
//! ```no_run
//! # fn main() -> Result<(), dmabuf_dio::Error> {
//! use dmabuf_dio::{Loader, Saver};
//!
//! // A dma-buf, or a memfd where there is none; without any_kind() that is an error.
//! let loaded = Loader::new("model.safetensors").any_kind().load()?;
//! println!("{}", loaded.report); // 548105171 bytes by module, direct: 0.182 s, 3.01 GB/s
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
//! | | |
//! |---|---|
//! | [`Loader`], [`Saver`] | load a file into a buffer, save a buffer to a file |
//! | [`LoadedFile`] | the content as a file in memory that any program opens by path, and as a dma-buf |
//! | [`DmaBuf`], [`Map`], [`MapMut`] | the buffer, and views of its content |
//! | [`Report`], [`Refusal`] | how the data was transferred, and why a backend was not available |
//! | [`Progress`], [`CancelToken`] | watching a transfer, and stopping it |
//! | [`gather`] | many small pieces of a file at once |
//! | [`probe`] | what this kernel, its devices and a file offer |
//! | [`lend`] | the layer below: memory lent to the kernel, for custom schedulers |
//!
//! Streams of samples between IIO devices, files, sockets and USB are in `dmabuf-dio-stream`.
//!
//! Internally, `load.rs`, `save.rs` and `gather/` are the entry points. `backend/` selects a
//! backend and has one file for each; `transfer/` cuts a range into requests; `lend/` lends the
//! memory. `buf/`, `file/` and `memory/` are the resources they work on. No two
//! files import each other.
//!
//! Programs of 32 bits are built with `--cfg io_uring_skip_arch_check` (docs/reach.md). They map at most
//! 2 GiB of a buffer; longer ones are loaded and saved by the backends that need no mapping.
//!
//! All lengths and offsets are in bytes. All calls block until they are done. Between calls, no
//! state is kept except in values of this library, and calls do not change process-wide settings.

#![cfg(target_os = "linux")]

pub mod gather;
pub mod lend;
pub mod probe;

mod backend;
mod buf;
mod control;
mod direction;
mod errno;
mod error;
mod fd;
mod file;
mod kind;
mod known;
mod limit;
mod load;
mod loaded_file;
mod memory;
mod options;
mod private;
mod report;
mod save;
mod threads;
mod transfer;

pub use backend::one_by_one::OneByOne;
pub use backend::{Backend, Refusal, UnknownBackend};
pub use buf::DmaBuf;
pub use buf::map::{Map, MapMut};
pub use control::{CancelToken, Progress};
pub use direction::Direction;
pub use errno::Errno;
pub use error::{Error, Result};
pub use file::dma::{Dma, Mapped};
pub use kind::Kind;
pub use load::{Loaded, Loader};
pub use loaded_file::LoadedFile;
pub use memory::sizes::PageSizes;
pub use private::{Private, PrivateMemory};
pub use report::{Mode, Report};
pub use save::Saver;

// The code in the README is compiled like that of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
