// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report of a transfer, as measured afterwards.

pub(crate) mod facts;
pub(crate) mod measure;
mod no_file;

use std::collections::BTreeMap;
use std::fmt;

use crate::backend::{Backend, Refusal};
use crate::content::Fetched;
use crate::direction::Direction;
use crate::file::dma::Dma;
use crate::kind::Kind;
use crate::numa::Numa;

/// How the data was transferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Mode {
    /// Storage moved at least as many bytes, and the page cache did not grow. The kernel does not
    /// count all storage of files that another program or machine serves (9p, AFS, Ceph, FUSE, NFS,
    /// SMB). For these, the page cache did not grow, and had no data of a file that was read.
    Direct,
    /// The page cache of the file's range grew, or no direct I/O was requested.
    Buffered,
    /// Part of the data went through the page cache.
    Mixed,
    /// The data was already in the page cache: no storage was read.
    PageCache,
    /// The data came from a [`Content`](crate::content::Content): no file and no page cache had it.
    Fetched,
    /// The data went to what is no file: no file and no page cache had it.
    Sent,
    /// The kernel's counters are not sufficient to determine it.
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
            Self::Fetched => "fetched",
            Self::Sent => "sent",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The actions and the cost of a transfer.
///
/// Storage and CPU time are counted for the whole process, the page cache for the range of the file,
/// in whole pages (for a gather: the whole file). The figures include concurrent activity of other threads and processes.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Report {
    /// Load or save.
    pub operation: Direction,
    /// The backend that moved the data; `None` for private memory, for what came from a reader or a
    /// [`Content`](crate::content::Content), and for what was sent.
    pub backend: Option<Backend>,
    /// The kind of the buffer; `None` for what came from a reader.
    pub buffer: Option<Kind>,
    /// How the data was transferred.
    pub mode: Mode,
    /// The measurements that `mode` is based on.
    pub evidence: String,
    /// Bytes moved.
    pub bytes: u64,
    /// Bytes that the CPU copied: to or from the page cache, from a staging buffer, or out of whole
    /// blocks at the ends of the range, and all bytes if Btrfs copies data for its checksums before
    /// it writes. It follows from `mode`, not from what was requested. If the mode is unknown,
    /// copies made by the file system are not included. The module may have copied up to a block
    /// more at each end.
    pub copied_bytes: u64,
    /// Elapsed time in seconds, including the allocation of the buffer.
    pub seconds: f64,
    /// User and system CPU time of the process in seconds, including the kernel's work on its
    /// behalf.
    pub cpu_seconds: f64,
    /// Rate: `bytes` per `seconds`, in units of 10^9.
    pub gb_per_second: f64,
    /// Growth of the page cache of the file's range in bytes, negative if it shrank; `None` if
    /// unknown, and if there is no file to look at: for what was fetched or sent.
    pub page_cache_grown: Option<i64>,
    /// Bytes read from or written to storage; `None` if the kernel does not count them.
    pub storage_bytes: Option<u64>,
    /// Page size of most of the buffer's memory in bytes; `None` if unknown.
    pub page_size: Option<u64>,
    /// Bytes of the buffer's memory in huge pages; `None` if unknown.
    pub huge_bytes: Option<u64>,
    /// The nodes that the memory was to be on; `None` if that was left open.
    pub numa: Option<Numa>,
    /// Bytes of the buffer's memory on each node, as the kernel says after the load; `None` if it does not, as for
    /// a dma-buf of a heap or of the module, or if [`numa`](Self::numa) was left open.
    pub nodes: Option<BTreeMap<u32, u64>>,
    /// Whether the buffer's memory stays in memory, as was asked for: locked, or of a kind that is never swapped out.
    pub locked: bool,
    /// Number of physically contiguous segments of the buffer; `None` if the backend does not
    /// report it.
    pub segments: Option<u32>,
    /// How memory is mapped for the disk; `None` if the disk is unknown.
    pub dma: Option<Dma>,
    /// What it took to fetch a [`Content`](crate::content::Content); `None` for files.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub fetched: Option<Fetched>,
    /// Why the transfer differed from the request or from the best method.
    pub notes: Vec<String>,
    /// Why the preferred backends were not available.
    pub refusals: Vec<Refusal>,
}

impl fmt::Display for Report {
    /// One line: bytes, backend, mode, time, rate.
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
    fn modes_have_one_name_in_every_format() {
        let names = [
            (Mode::Direct, "direct"),
            (Mode::Buffered, "buffered"),
            (Mode::Mixed, "mixed"),
            (Mode::PageCache, "page-cache"),
            (Mode::Fetched, "fetched"),
            (Mode::Sent, "sent"),
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
