// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kinds of buffers.

use std::fmt;

/// The type of a buffer's file descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "lowercase"))]
pub enum Kind {
    /// A dma-buf: devices can import it.
    DmaBuf,
    /// A memfd, or an unnamed file on a tmpfs: processes can share it. `/dev/udmabuf` can turn a
    /// memfd into a dma-buf.
    Memfd,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DmaBuf => "dma-buf",
            Self::Memfd => "memfd",
        })
    }
}
