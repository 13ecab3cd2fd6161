// SPDX-License-Identifier: MIT OR Apache-2.0
//! The settings of a load, and the transfers that they make.

use dmabuf_dio::gather::Gatherer;
use dmabuf_dio::{CancelToken, Options};

use crate::meter::Callback;
use crate::model::Model;

/// Default of `TensorLoader::gap`: reading so much more costs as little as another request.
pub(crate) const GAP: u64 = 256 << 10;
/// The same for contents: a request takes 10 to 50 ms, in which a store delivers more.
pub(crate) const GAP_OF_CONTENT: u64 = 1 << 20;
/// Default of `TensorLoader::concurrency`.
pub(crate) const CONCURRENCY: usize = 4;

/// The most bytes between two tensors that are read together.
pub(crate) fn usual_gap(model: &Model) -> u64 {
    if model.is_of_contents() { GAP_OF_CONTENT } else { GAP }
}

/// All settings except the tensors.
#[derive(Clone)]
pub(crate) struct LoadSettings {
    pub(crate) options: Options,
    /// `None`: that of files or contents.
    pub(crate) gap: Option<u64>,
    pub(crate) concurrency: usize,
    pub(crate) progress: Option<Callback>,
    pub(crate) cancel: CancelToken,
}

impl Default for LoadSettings {
    fn default() -> Self {
        Self {
            options: Options::default(),
            gap: None,
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
