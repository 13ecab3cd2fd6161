// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a reader has done so far.

/// What a [`Reader`](crate::Reader) has read, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReaderReport {
    /// Bytes of the tensors that were requested, each as often as it was.
    pub requested: u64,
    /// Bytes that loads read, including those between tensors that were read together. What came
    /// from the page cache does not count.
    pub read: u64,
    /// Bytes of tensors that were read ahead in vain: they made room for others before they were
    /// requested.
    pub dropped: u64,
    /// Loads.
    pub reads: u64,
    /// The bytes that may be in memory before they are requested: what the caller has set, or what
    /// was chosen from the speed of the disk and the free memory.
    pub window: u64,
}
