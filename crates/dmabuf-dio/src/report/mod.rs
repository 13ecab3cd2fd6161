// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a transfer did, as it was found out afterwards.

pub(crate) mod facts;
pub(crate) mod measure;

use std::fmt;

use crate::backend::{Backend, Refusal};
use crate::direction::Direction;
use crate::kind::Kind;

/// How the bytes moved in truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Mode {
    /// Storage moved at least as many bytes, and the file's page cache did not grow.
    Direct,
    /// The file's page cache grew, or nobody asked for anything else.
    Buffered,
    /// Part of the bytes went through the page cache.
    Mixed,
    /// The bytes were in the page cache already: storage gave none.
    PageCache,
    /// The kernel does not tell enough to know.
    Unknown,
}

impl Mode {
    /// The name that [`Display`](fmt::Display) prints.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Buffered => "buffered",
            Self::Mixed => "mixed",
            Self::PageCache => "page-cache",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What a transfer did and what it cost.
///
/// Storage, CPU time and page cache are counted for the whole process, the latter for the whole
/// file: what other threads and processes do with them meanwhile is in the figures too.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Report {
    /// Load or save.
    pub operation: Direction,
    /// The backend that moved the bytes; `None` for memory of this process alone.
    pub backend: Option<Backend>,
    /// What the buffer is; `None` for memory of this process alone.
    pub buffer: Option<Kind>,
    /// How the bytes moved in truth.
    pub mode: Mode,
    /// What `mode` was concluded from.
    pub evidence: String,
    /// Bytes moved.
    pub bytes: u64,
    /// How many of them the CPU copied: to or from the page cache, from a stage, or out of whole
    /// blocks at either end of the range. It follows `mode`, whatever was asked for; where that is
    /// unknown, so is what a file system copied of its own accord, and is not in it. The module may
    /// have copied less than a block more at each end.
    pub copied_bytes: u64,
    /// Wall time in seconds, with allocating the buffer.
    pub seconds: f64,
    /// User and system time of the process in seconds, with the kernel's work for it.
    pub cpu_seconds: f64,
    /// `bytes` per `seconds`, in units of 10^9.
    pub gb_per_second: f64,
    /// Bytes that the file's page cache grew by, negative if it shrank; `None` if unknown.
    pub page_cache_grown: Option<i64>,
    /// Bytes that storage gave or took; `None` if the kernel does not count them.
    pub storage_bytes: Option<u64>,
    /// Page size of most of the buffer's memory in bytes; `None` if the buffer does not tell.
    pub page_size: Option<u64>,
    /// How much of the buffer's memory is in huge pages, in bytes; `None` if it does not tell.
    pub huge_bytes: Option<u64>,
    /// Physically contiguous pieces of the buffer; `None` if the backend does not tell.
    pub segments: Option<u32>,
    /// Why something was done in another way than asked for or than is best.
    pub notes: Vec<String>,
    /// Why the backends that would have come before this one were not available.
    pub refusals: Vec<Refusal>,
}

impl fmt::Display for Report {
    /// In a line: bytes, backend, mode, time, rate.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes, mode, seconds, gb_per_second, .. } = self;
        write!(f, "{bytes} bytes ")?;
        if let Some(backend) = self.backend {
            write!(f, "by {backend}, ")?;
        }
        write!(f, "{mode}: {seconds:.3} s, {gb_per_second:.2} GB/s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_have_one_name_everywhere() {
        let names = [
            (Mode::Direct, "direct"),
            (Mode::Buffered, "buffered"),
            (Mode::Mixed, "mixed"),
            (Mode::PageCache, "page-cache"),
            (Mode::Unknown, "unknown"),
        ];
        for (mode, name) in names {
            assert_eq!((mode.name(), mode.to_string().as_str()), (name, name));
            #[cfg(feature = "serde")]
            assert_eq!(serde_json::to_string(&mode).expect("text"), format!("\"{name}\""));
        }
        assert_eq!(format!("{:>8}|", Mode::Mixed), "   mixed|", "tables are lined up");
    }
}
