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
//! // A dma-buf, or a memfd where there is none; with kind(Kind::DmaBuf) that is an error.
//! let buffer = Loader::new("model.safetensors").load()?;
//! if let Some(report) = buffer.report() {
//!     println!("{report}"); // 548105171 bytes by module, direct: 0.182 s, 3.01 GB/s
//! }
//!
//! // The descriptor goes to whatever imports it: a GPU, a camera, another process.
//! let fd = buffer.fd()?;
//! # let _ = fd;
//!
//! Saver::new("copy").save(&buffer, buffer.range())?;
//! # Ok(())
//! # }
//! ```
//!
//! | | |
//! |---|---|
//! | [`Loader`], [`Saver`] | load a file into a buffer, save a buffer or a reader to a file |
//! | [`Buffer`], [`Kind`], [`Numa`] | memory with the content: a dma-buf, a memfd, both, or private, and its place |
//! | [`DmaBuf`], [`Map`], [`MapMut`] | what devices import, and views of the content |
//! | [`Report`], [`Refusal`] | how the data was transferred, and why a backend was not available |
//! | [`Progress`], [`CancelToken`] | watching a transfer, and stopping it |
//! | [`content`], [`Origin`] | sources that are no files, such as the objects of a store |
//! | [`gather`] | many small pieces of a file at once |
//! | [`probe`] | what this kernel, its devices and a file offer |
//! | [`lend`] | the layer below: memory lent to the kernel, for custom schedulers |
//!
//! Streams of samples between IIO devices, files, sockets and USB are in `dmabuf-dio-stream`.
//!
//! Internally, `load.rs`, `save.rs` and `gather/` are the entry points, and `fetch.rs` loads what is
//! no file. `backend/` has one file for each
//! backend, `choose/` picks one; `transfer/` cuts a range into requests; `lend/` lends the
//! memory. `buffer/`, `file/` and `memory/` are the resources they work on. No two
//! files import each other.
//!
//! Programs of 32 bits are built with `--cfg io_uring_skip_arch_check` (docs/reach.md). They map at most
//! 2 GiB of a buffer; longer ones are loaded and saved by the backends that need no mapping.
//!
//! All lengths and offsets are in bytes. All calls block until they are done. Between calls, no
//! state is kept except in values of this library, and calls do not change process-wide settings.

#![cfg(target_os = "linux")]

pub mod content;
pub mod gather;
pub mod lend;
pub mod probe;

mod backend;
mod buffer;
mod choose;
mod control;
mod direction;
#[cfg(any(test, fuzzed))]
#[path = "../../../tests/drawn.rs"]
mod drawn;
mod errno;
mod error;
mod fd;
mod fetch;
mod file;
#[cfg(any(test, fuzzed))]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(test)]
#[path = "../../../tests/fuzz/library/kept.rs"]
mod kept_inputs;
mod kind;
mod known;
mod limit;
mod load;
mod memory;
mod numa;
mod one_by_one;
mod options;
mod origin;
mod refusal;
mod report;
mod save;
mod sending;
mod settle;
mod sync;
mod threads;
mod transfer;

pub use backend::{Backend, Refusal, UnknownBackend};
pub use buffer::Buffer;
pub use buffer::dma_buf::DmaBuf;
pub use buffer::map::{Map, MapMut};
pub use control::{CancelToken, Progress};
pub use direction::Direction;
pub use errno::Errno;
pub use error::hint::{Hint, Words};
pub use error::{Error, Result};
pub use file::dma::{Dma, Mapped};
pub use kind::{Kind, UnknownKind};
pub use load::Loader;
pub use memory::sizes::PageSizes;
pub use numa::{Numa, UnknownNuma};
pub use one_by_one::OneByOne;
pub use options::Options;
pub use origin::Origin;
pub use report::{Mode, Report};
pub use save::Saver;
pub use sending::Sending;

// The code in the README is compiled like that of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
