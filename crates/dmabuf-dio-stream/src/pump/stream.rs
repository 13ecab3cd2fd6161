// SPDX-License-Identifier: MIT OR Apache-2.0
//! A stream and its settings.

use std::sync::Arc;
use std::time::Duration;

use dmabuf_dio::CancelToken;

use super::summary::{Known, State};
use crate::ends::{Sink, Source};
use crate::ring::BlockRing;

/// What to do if the sink is slower than the source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum Overrun {
    /// Wait for the sink. Meanwhile a device loses samples; a file does not.
    #[default]
    Block,
    /// End the stream at the first loss.
    Fail,
}

type Callback<'s> = dyn FnMut(State) + 's;
type Recorder<'s> = dyn FnMut(&Known<'_>) + 's;

/// How long a stream lasts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Time {
    pub(super) frames: Option<u64>,
    pub(super) seconds: Duration,
}

/// A source, a sink, and the blocks that circulate between them.
///
/// Neither `Send` nor `Sync`: it runs on the thread that creates it. Do not use it in a child of
/// `fork(2)`: the parent's devices and rings are shared with it.
pub struct Stream<'s> {
    pub(super) source: &'s mut dyn Source,
    pub(super) sink: &'s mut dyn Sink,
    pub(super) ring: Arc<BlockRing>,
    pub(super) overrun: Overrun,
    pub(super) limit: Option<u64>,
    pub(super) time: Option<Time>,
    pub(super) cut: Option<u64>,
    pub(super) cancel: CancelToken,
    pub(super) progress: Option<Box<Callback<'s>>>,
    pub(super) recorder: Option<Box<Recorder<'s>>>,
}

impl<'s> Stream<'s> {
    /// Connects a source and a sink through a ring.
    pub fn new(source: &'s mut dyn Source, sink: &'s mut dyn Sink, ring: BlockRing) -> Self {
        let ring = Arc::new(ring);
        let (overrun, cancel) = (Overrun::default(), CancelToken::new());
        let (limit, time, cut) = (None, None, None);
        let (progress, recorder) = (None, None);
        Self { source, sink, ring, overrun, limit, time, cut, cancel, progress, recorder }
    }

    /// What to do if the sink is slower than the source. Default: [`Overrun::Block`].
    #[must_use]
    pub fn overrun(mut self, overrun: Overrun) -> Self {
        self.overrun = overrun;
        self
    }

    /// Ends the stream after `bytes` bytes, rounded down to whole frames.
    #[must_use]
    pub fn limit(mut self, bytes: u64) -> Self {
        self.limit = Some(bytes);
        self
    }

    /// Ends the stream after `frames` frames of the device's time, which last `seconds` seconds.
    /// Frames that the device lost, or for which it had nothing to output, count. If the device
    /// does not report their number, or without `frames` (for a device without a rate), the stream
    /// ends `seconds` seconds after its start.
    #[must_use]
    pub fn time(mut self, frames: Option<u64>, seconds: f64) -> Self {
        let seconds = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        self.time = Some(Time { frames, seconds });
        self
    }

    /// Ends a block after every `bytes` bytes, rounded down to whole frames and to a multiple of
    /// [`Facts::align`](crate::Facts::align), but at least one multiple. A
    /// [`RotatingSink`](crate::RotatingSink) needs this, because its files begin with a block.
    #[must_use]
    pub fn cut(mut self, bytes: u64) -> Self {
        self.cut = Some(bytes);
        self
    }

    /// Ends the stream cleanly once the token is cancelled: full blocks still reach the sink, the
    /// one being filled does not. A sink that then accepts no block for 30 s is abandoned.
    #[must_use]
    pub fn cancel(mut self, token: CancelToken) -> Self {
        self.cancel = token;
        self
    }

    /// Reports progress: right before the first sample, then about every 100 ms, from the thread
    /// that runs the stream.
    #[must_use]
    pub fn progress(mut self, callback: impl FnMut(State) + 's) -> Self {
        self.progress = Some(Box::new(callback));
        self
    }

    /// Reports the known facts about the data about every 100 ms, for a record that survives if the
    /// process is killed. Called from the thread that runs the stream: it must not take long.
    #[must_use]
    pub fn record(mut self, recorder: impl FnMut(&Known<'_>) + 's) -> Self {
        self.recorder = Some(Box::new(recorder));
        self
    }
}
