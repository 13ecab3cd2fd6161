// SPDX-License-Identifier: MIT OR Apache-2.0
//! Streams to and from other programs: pipes, sockets and other descriptors.

mod descriptor;
mod fd;
mod socket;

pub use fd::{FdSink, FdSource};
pub use socket::SocketSink;
