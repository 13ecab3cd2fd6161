// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel interfaces of dmabuf-dio, as thin typed calls.
//!
//! One module per interface:
//!
//! | module | interface |
//! |---|---|
//! | [`dio`] | `/dev/dmabuf_dio`: the ioctls and `io_uring` commands of the dmabuf-dio kernel module |
//! | [`dmabuf`] | CPU access to a dma-buf, fences of pending device work, its name |
//! | [`sync_file`] | a descriptor for a fence: pending work of devices |
//! | [`heap`] | `/dev/dma_heap/*`: allocation from a dma-buf heap, also with a file's content |
//! | [`udmabuf`] | `/dev/udmabuf`: a dma-buf over the pages of a memfd |
//! | [`iio`] | buffers of an IIO device, with dma-bufs as blocks of samples |
//! | [`v4l2`] | capture devices of V4L2, with dma-bufs as frames |
//! | [`functionfs`] | endpoints of a USB function, which accept dma-bufs |
//! | [`cachestat`] | `cachestat(2)`: how much of a file is in the page cache |
//! | [`mempolicy`] | `mbind(2)` and its like: the NUMA nodes that memory is on |
//!
//! Every call borrows its file descriptors and returns owned ones. Errors are the kernel's
//! numbers, as [`Errno`]. All lengths and offsets are in bytes. Layouts are checked at build time,
//! and against the C headers in this crate's tests.

#![cfg(target_os = "linux")]

pub mod cachestat;
pub mod dio;
pub mod dmabuf;
pub mod drm;
pub mod functionfs;
pub mod heap;
pub mod iio;
pub mod mempolicy;
pub mod sync_file;
pub mod udmabuf;
pub mod v4l2;

mod call;
mod errno;
mod layout;

pub use errno::{Errno, Result};
