// SPDX-License-Identifier: MIT OR Apache-2.0
//! The settings of a load, and the transfers that they make.

use dmabuf_dio::gather::Gatherer;
use dmabuf_dio::{Backend, CancelToken, Kind, Loader};

use crate::loaded::{Buffer, Memory};
use crate::meter::Callback;

/// Default of `TensorLoader::gap`: reading so much more costs as little as another request.
const GAP: u64 = 256 << 10;
/// Default of `TensorLoader::concurrency`.
const CONCURRENCY: usize = 4;
/// The kind of memory that a load creates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// A dma-buf, or what the selected backend creates.
    Unsaid,
    Kind(Kind),
    Any,
    Private,
}

/// All settings except the tensors.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) wanted: Wanted,
    pub(crate) backend: Option<Backend>,
    pub(crate) direct: bool,
    pub(crate) huge_pages: bool,
    pub(crate) block_size: Option<u64>,
    pub(crate) queue_depth: Option<u32>,
    pub(crate) gap: u64,
    pub(crate) concurrency: usize,
    pub(crate) progress: Option<Callback>,
    pub(crate) cancel: CancelToken,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            wanted: Wanted::Unsaid,
            backend: None,
            direct: true,
            huge_pages: true,
            block_size: None,
            queue_depth: None,
            gap: GAP,
            concurrency: CONCURRENCY,
            progress: None,
            cancel: CancelToken::new(),
        }
    }
}

impl Settings {
    pub(crate) fn loader<'f>(&self, loader: Loader<'f>) -> Loader<'f> {
        let mut loader =
            loader.backend(self.backend).direct(self.direct).huge_pages(self.huge_pages);
        if let Some(bytes) = self.block_size {
            loader = loader.block_size(bytes);
        }
        if let Some(requests) = self.queue_depth {
            loader = loader.queue_depth(requests);
        }
        match self.wanted {
            Wanted::Kind(kind) => loader.kind(kind),
            Wanted::Any => loader.any_kind(),
            Wanted::Unsaid | Wanted::Private => loader,
        }
    }

    pub(crate) fn gatherer<'f>(&self, gatherer: Gatherer<'f>) -> Gatherer<'f> {
        let gatherer = gatherer.direct(self.direct);
        match self.queue_depth {
            Some(requests) => gatherer.queue_depth(requests),
            None => gatherer,
        }
    }

    /// Loads a run, and finds its first byte in the buffer.
    pub(crate) fn load(
        &self,
        loader: &Loader<'_>,
        file: usize,
    ) -> dmabuf_dio::Result<(Buffer, u64)> {
        if self.wanted == Wanted::Private {
            let private = loader.load_private()?;
            let report = private.report.clone();
            return Ok((Buffer { memory: Memory::Private(Box::new(private)), file, report }, 0));
        }
        let loaded = loader.load()?;
        let (memory, report) = (Memory::Shared(loaded.buf), loaded.report);
        Ok((Buffer { memory, file, report }, loaded.data_offset))
    }
}
