// SPDX-License-Identifier: MIT OR Apache-2.0
//! The settings of a load, and the transfers that they make.

use dmabuf_dio::gather::Gatherer;
use dmabuf_dio::{CancelToken, Options};

use crate::meter::Callback;

/// Default of `TensorLoader::gap`: reading so much more costs as little as another request.
pub(crate) const GAP: u64 = 256 << 10;
/// Default of `TensorLoader::concurrency`.
pub(crate) const CONCURRENCY: usize = 4;

/// All settings except the tensors.
#[derive(Clone)]
pub(crate) struct LoadSettings {
    pub(crate) options: Options,
    pub(crate) gap: u64,
    pub(crate) concurrency: usize,
    pub(crate) progress: Option<Callback>,
    pub(crate) cancel: CancelToken,
}

impl Default for LoadSettings {
    fn default() -> Self {
        Self {
            options: Options::default(),
            gap: GAP,
            concurrency: CONCURRENCY,
            progress: None,
            cancel: CancelToken::new(),
        }
    }
}

impl LoadSettings {
    pub(crate) fn gatherer<'f>(&self, gatherer: Gatherer<'f>) -> Gatherer<'f> {
        let gatherer = gatherer.direct(self.options.direct);
        match self.options.queue_depth {
            Some(requests) => gatherer.queue_depth(requests),
            None => gatherer,
        }
    }
}
