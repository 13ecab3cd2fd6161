// SPDX-License-Identifier: MIT OR Apache-2.0
//! Streams to and from other programs: pipes, sockets and other descriptors.

mod descriptor;
mod fd_sink;
mod fd_source;
mod socket;

pub use fd_sink::FdSink;
pub use fd_source::FdSource;
pub use socket::SocketSink;
