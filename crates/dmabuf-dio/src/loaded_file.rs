// SPDX-License-Identifier: MIT OR Apache-2.0
//! The content of a file as a file in memory, and as a dma-buf.

use std::os::fd::AsFd as _;
use std::path::PathBuf;

use rustix::fs::SealFlags;

use crate::backend::udmabuf;
use crate::backend::{Backend, Refusal};
use crate::buf::DmaBuf;
use crate::errno::Errno;
use crate::error::Result;
use crate::fd::proc_path;
use crate::memory::page::page_size;
use crate::report::Report;

/// The content of a file, loaded by [`Loader::load_file`](crate::Loader::load_file): a file in
/// memory for programs, and if possible a dma-buf for devices.
///
/// Both are views of the same pages: what is written through one is seen through the other. A
/// partial page at the end is the exception: the dma-buf has a copy of it, followed by zeros, since
/// the kernel creates dma-bufs of whole pages only. See [`shared_len`](Self::shared_len).
///
/// Programs that use the file do not begin and end CPU access. A Linux kernel without the fix in
/// kernel/series does not synchronise devices for a udmabuf anyway: use the dma-buf with devices
/// that are coherent and not behind bounce buffers.
///
/// `Send` and `Sync`. The memory lives as long as any descriptor, mapping or device uses it.
#[derive(Debug)]
#[non_exhaustive]
pub struct LoadedFile {
    /// A memfd that holds the content and nothing else, in huge pages if possible. It can neither
    /// shrink nor grow. [`path`](Self::path) is its path.
    pub file: DmaBuf,
    /// A dma-buf over the pages of the memfd, or why there is none. Its length is that of the
    /// content, rounded up to whole pages. While it exists, the pages are pinned: they are not
    /// swapped out.
    pub dmabuf: Result<DmaBuf, Refusal>,
    /// How the data was transferred. Creating the dma-buf does not count.
    pub report: Report,
}

impl LoadedFile {
    /// Creates the dma-buf last: pages cannot be collapsed into huge ones once they are pinned.
    pub(crate) fn new(file: DmaBuf, report: Report) -> Self {
        let dmabuf = udmabuf::over(&file).map_err(|attempt| attempt.into_refusal(Backend::Udmabuf));
        Self { file, dmabuf, report }
    }

    /// The path at which programs open the memfd: see [`DmaBuf::path`].
    pub fn path(&self) -> PathBuf {
        proc_path(self.file.as_fd())
    }

    /// Length of the content in bytes.
    pub fn len(&self) -> u64 {
        self.file.len()
    }

    /// Always `false`: an empty file is not loaded.
    pub fn is_empty(&self) -> bool {
        self.file.is_empty()
    }

    /// How many bytes, from the start, the file and the dma-buf share: those in whole pages. The
    /// dma-buf has a copy of the rest. 0 if there is no dma-buf.
    pub fn shared_len(&self) -> u64 {
        match self.dmabuf {
            Ok(_) => self.len() / page_size() * page_size(),
            Err(_) => 0,
        }
    }

    /// Seals the file permanently against writing. It can no longer be written or mapped for
    /// writing, and no holes can be punched.
    ///
    /// With a dma-buf, `F_SEAL_FUTURE_WRITE` is used: the kernel refuses `F_SEAL_WRITE` for memory
    /// that is pinned. Then existing writable mappings of the file stay writable, and so does the
    /// dma-buf, for anyone who has its descriptor. It is also used if the file is mapped for
    /// writing, as in a child that was forked while it was loaded.
    ///
    /// # Errors
    ///
    /// [`Error::Buffer`](crate::Error::Buffer).
    pub fn seal(&mut self) -> Result<()> {
        match self.dmabuf {
            Ok(_) => self.file.add_seal(SealFlags::FUTURE_WRITE),
            Err(_) => match self.file.seal() {
                Err(error) if error.errno() == Some(Errno::BUSY) => {
                    self.file.add_seal(SealFlags::FUTURE_WRITE)
                }
                sealed => sealed,
            },
        }
    }
}
