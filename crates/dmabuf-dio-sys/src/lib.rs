// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel interfaces that dmabuf-dio is built on, as thin typed calls.
//!
//! One module per interface:
//!
//! | module | interface |
//! |---|---|
//! | [`dio`] | `/dev/dmabuf_dio`: the ioctls and `io_uring` commands of the dmabuf-dio kernel module |
//! | [`dmabuf`] | CPU access to a dma-buf, what devices still do with it, its name |
//! | [`sync_file`] | a descriptor that stands for work of devices |
//! | [`heap`] | `/dev/dma_heap/*`: allocation from a dma-buf heap, and of a file's content |
//! | [`udmabuf`] | `/dev/udmabuf`: a dma-buf over the pages of a memfd |
//! | [`iio`] | buffers of an IIO device: blocks of samples that are dma-bufs |
//! | [`functionfs`] | endpoints of a USB function that take dma-bufs |
//! | [`cachestat`] | `cachestat(2)`: how much of a file is in the page cache |
//!
//! Every call takes its file descriptors borrowed and returns new ones owned. Errors are
//! [`rustix::io::Errno`], as the kernel gave them. All lengths and offsets are in bytes.
//! What a layout must be is checked at build time here, and against the C headers in this crate's tests.

#![cfg(target_os = "linux")]

pub mod cachestat;
pub mod dio;
pub mod dmabuf;
pub mod functionfs;
pub mod heap;
pub mod iio;
pub mod sync_file;
pub mod udmabuf;

mod layout;

pub use rustix::io::{Errno, Result};
