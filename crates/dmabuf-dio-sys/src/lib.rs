// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel interfaces that dmabuf-dio is built on, as thin typed calls.
//!
//! One module per interface:
//!
//! | module | interface |
//! |---|---|
//! | [`dio`] | `/dev/dmabuf_dio`: the ioctls and `io_uring` commands of the dmabuf-dio kernel module |
//! | [`dmabuf`] | `DMA_BUF_IOCTL_SYNC` and `DMA_BUF_SET_NAME` on a dma-buf |
//! | [`heap`] | `/dev/dma_heap/*`: allocation from a dma-buf heap, and of a file's content |
//! | [`udmabuf`] | `/dev/udmabuf`: a dma-buf over the pages of a memfd |
//! | [`cachestat`] | `cachestat(2)`: how much of a file is in the page cache |
//!
//! Every call takes its file descriptors borrowed and returns new ones owned. Errors are
//! [`rustix::io::Errno`], as the kernel gave them. All lengths and offsets are in bytes.
//! What a layout must be is checked at build time here, and against the C headers in this crate's tests.

#![cfg(target_os = "linux")]

pub mod cachestat;
pub mod dio;
pub mod dmabuf;
pub mod heap;
pub mod udmabuf;

mod layout;

pub use rustix::io::{Errno, Result};
