// SPDX-License-Identifier: MIT OR Apache-2.0
//! Passes blocks from a source to a sink and back.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno as Os;

use crate::error::{Error, Result};
use crate::gaps::{Gap, Ledger};
use crate::ring::Ring;
use crate::wait::{TICK, Wait, wait_for_any};
use crate::{Sink, Source, failed};
use dmabuf_dio::CancelToken;

/// How long a sink may take for a block after the stream was cancelled.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 30 });
/// How often the device's loss counter is read while it always has a block.
const COUNT: Duration = Duration::from_millis(10);

/// What to do if the sink is slower than the source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum Overrun {
    /// Wait for the sink. Meanwhile a device loses samples; a file does not.
    #[default]
    Block,
    /// Drop the newest full block when the source has only one left. Needs a ring of at
    /// least three: with two the source always has only one left.
    Drop,
    /// End the stream at the first loss.
    Fail,
}

/// The result of a stream.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Summary {
    /// How data got from the source into the blocks.
    pub source: String,
    /// How data got from the blocks to the sink.
    pub sink: String,
    /// Bytes delivered to the sink.
    pub bytes: u64,
    /// Number of lost frames, as far as known.
    pub lost_frames: u64,
    /// Where frames were lost.
    pub gaps: Vec<Gap>,
    /// Whether the source can detect lost frames. If not, there may be further gaps.
    pub loss_known: bool,
    /// Seconds from the start of the source to the end.
    pub seconds: f64,
    /// CPU time of all threads of this process during that time, in seconds.
    pub cpu_seconds: f64,
}

/// The progress of a stream.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct State {
    /// Bytes delivered to the sink.
    pub bytes: u64,
    /// Number of lost frames, as far as known.
    pub lost_frames: u64,
    /// Number of gaps.
    pub gaps: usize,
    /// Full blocks: the sink works on them, or they wait for it.
    pub full: usize,
    /// Number of blocks in the ring.
    pub blocks: usize,
    /// Time since the start of the source.
    pub elapsed: Duration,
    /// CPU time of all threads of this process since then.
    pub cpu: Duration,
}

/// Why a stream ended early, and its result up to then.
#[derive(Debug)]
pub struct Interrupted {
    /// The error.
    pub error: Error,
    /// What was delivered to the sink.
    pub summary: Summary,
}

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, after {} bytes", self.error, self.summary.bytes)
    }
}

impl std::error::Error for Interrupted {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

type Callback<'s> = dyn FnMut(State) + 's;

/// A source, a sink, and the blocks that circulate between them.
///
/// Neither `Send` nor `Sync`: it runs on the thread that creates it. Do not use it in a child of
/// `fork(2)`: the parent's devices and rings are shared with it.
pub struct Stream<'s> {
    source: &'s mut dyn Source,
    sink: &'s mut dyn Sink,
    ring: Arc<Ring>,
    overrun: Overrun,
    limit: Option<u64>,
    cancel: CancelToken,
    progress: Option<Box<Callback<'s>>>,
}

impl<'s> Stream<'s> {
    /// Connects a source and a sink through a ring.
    pub fn new(source: &'s mut dyn Source, sink: &'s mut dyn Sink, ring: Ring) -> Self {
        let ring = Arc::new(ring);
        let (overrun, cancel) = (Overrun::default(), CancelToken::new());
        Self { source, sink, ring, overrun, limit: None, cancel, progress: None }
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

    /// Ends the stream in order once the token is cancelled: full blocks still reach the sink, the
    /// one being filled does not. A sink that then takes no block for 30 s is abandoned.
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

    /// Runs until the limit, the end of the source, a cancellation or an error; blocks until then.
    /// By then all data given to the sink has been delivered. If the sink itself failed, the
    /// summary says how much was.
    ///
    /// # Errors
    ///
    /// [`Error::Stream`] of the source or the sink; `EOVERFLOW` if frames were lost with
    /// [`Overrun::Fail`]. [`Setting`](dmabuf_dio::Error::Setting) if blocks are not whole frames.
    pub fn run(self) -> Result<Summary, Box<Interrupted>> {
        let limit = match (self.limit, self.source.len()) {
            (Some(limit), Some(len)) => Some(limit.min(len)),
            (limit, len) => limit.or(len),
        };
        let frame = self.source.frame().max(1);
        let mut run = Run {
            limit: limit.map(|limit| limit / frame * frame),
            ledger: Ledger::new(frame),
            stream: self,
            bytes: 0,
            asked: 0,
            begun: None,
            told: None,
            counted: Instant::now(),
            waits: false,
        };
        let mut result = run.go();
        if result.is_err() {
            // Losses up to here are reported even so.
            let _ = run.count();
        }
        if let Err(error) = run.stream.source.stop() {
            result = result.and(Err(error));
        }
        if result.is_err() {
            // What the source delivered before is still passed on.
            run.stream.cancel.cancel();
            let _ = run.drain();
        }
        let finished = run.stream.sink.finish();
        let summary = run.summary();
        match result.and(finished) {
            Ok(()) => Ok(summary),
            Err(error) => Err(Box::new(Interrupted { error, summary })),
        }
    }
}

struct Run<'s> {
    stream: Stream<'s>,
    /// In bytes.
    limit: Option<u64>,
    ledger: Ledger,
    /// Bytes that the sink has finished.
    bytes: u64,
    /// Bytes requested from the source and not dropped.
    asked: u64,
    /// When the source was started, and the CPU time until then.
    begun: Option<(Instant, Duration)>,
    told: Option<Instant>,
    /// When the source's counter was last read, and whether it had lost nothing without a block:
    /// such a source waits, and need not be read each time.
    counted: Instant,
    waits: bool,
}

impl Run<'_> {
    fn go(&mut self) -> Result<()> {
        let ring = Arc::clone(&self.stream.ring);
        let size = ring.size();
        if size % self.stream.source.frame().max(1) != 0 {
            let need = "a multiple of the frame size";
            return Err(dmabuf_dio::Error::Setting { name: "block", value: size, need }.into());
        }
        if self.stream.overrun == Overrun::Drop && ring.len() < 3 {
            let need = "at least 3 to drop one: one is filled, one is emptied";
            return Err(dmabuf_dio::Error::Setting {
                name: "blocks",
                value: ring.len() as u64,
                need,
            }
            .into());
        }
        self.stream.source.attach(&ring)?;
        self.stream.sink.attach(&ring, self.limit)?;
        for block in 0..ring.len() {
            self.fill(block)?;
        }
        self.begun = Some((Instant::now(), cpu_time()));
        self.tell();
        self.stream.source.start()?;
        loop {
            self.take_back()?;
            self.pass_on()?;
            if self.counted.elapsed() >= COUNT {
                self.count()?;
            }
            self.tell();
            let cancelled = self.stream.cancel.is_cancelled();
            let nothing_comes = cancelled || self.stream.source.queued() == 0;
            let ending = cancelled || self.all_asked_for();
            if ending && nothing_comes {
                self.count()?;
                break;
            }
            self.wait(true)?;
        }
        self.stream.source.stop()?;
        // The blocks that were full by then.
        self.pass_on()?;
        self.drain()
    }

    /// Waits until the sink has finished its blocks, but with a time limit once cancelled.
    fn drain(&mut self) -> Result<()> {
        let mut moved = Instant::now();
        while self.stream.sink.queued() > 0 {
            while let Some(filled) = self.stream.sink.take()? {
                self.bytes += filled.bytes;
                moved = Instant::now();
            }
            self.tell();
            if self.stream.cancel.is_cancelled() && moved.elapsed() > PATIENCE {
                return Err(failed("the sink", "accept its blocks", Os::TIMEDOUT));
            }
            if self.stream.sink.queued() > 0 {
                self.wait(false)?;
            }
        }
        Ok(())
    }

    fn all_asked_for(&self) -> bool {
        self.limit.is_some_and(|limit| self.asked >= limit)
    }

    /// Takes blocks back from the sink and queues them to the source again.
    fn take_back(&mut self) -> Result<()> {
        while let Some(filled) = self.stream.sink.take()? {
            self.bytes += filled.bytes;
            self.fill(filled.block)?;
        }
        Ok(())
    }

    /// Queues an empty block to the source, unless enough has been requested.
    fn fill(&mut self, block: usize) -> Result<()> {
        let left = self.limit.map_or(u64::MAX, |limit| limit.saturating_sub(self.asked));
        let bytes = self.stream.ring.size().min(left);
        if bytes == 0 || self.stream.cancel.is_cancelled() {
            return Ok(());
        }
        self.asked += bytes;
        let was_dry = self.stream.source.queue(block, bytes)? && self.begun.is_some();
        self.ledger.queued(bytes, was_dry);
        if was_dry && !self.waits { self.count() } else { Ok(()) }
    }

    /// Reads how much the source has lost so far.
    fn count(&mut self) -> Result<()> {
        let lost = self.stream.source.lost()?;
        // In this order: later losses are left for the next reading.
        let dry = self.stream.source.is_dry()?;
        self.waits = self.ledger.reading(lost, dry, self.all_asked_for());
        self.counted = Instant::now();
        if self.stream.overrun == Overrun::Fail && self.ledger.totals().1 > 0 {
            return Err(failed("the sink", "keep up with the source", Os::OVERFLOW));
        }
        Ok(())
    }

    /// Gives full blocks to the sink. Those that were full before the source failed are kept.
    fn pass_on(&mut self) -> Result<()> {
        let mut full = Vec::new();
        let end = loop {
            match self.stream.source.take() {
                Ok(Some(filled)) => full.push(filled),
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        // The source needs another block when this one is full.
        let short = self.stream.source.queued() <= 1 && !self.all_asked_for() && end.is_ok();
        let drop =
            short && self.stream.overrun == Overrun::Drop && !self.stream.cancel.is_cancelled();
        let last = full.len().wrapping_sub(1);
        for (number, filled) in full.into_iter().enumerate() {
            let start = self.ledger.taken(filled.bytes);
            if drop && number == last {
                self.ledger.dropped(start, filled.bytes);
                self.asked -= filled.bytes;
                self.fill(filled.block)?;
            } else {
                self.stream.sink.queue(filled)?;
            }
        }
        end
    }

    /// Waits until there may be something to do.
    fn wait(&self, source: bool) -> Result<()> {
        let ready = if source { self.stream.source.ready() } else { None };
        let waits: Vec<Wait<'_>> = ready.into_iter().chain(self.stream.sink.ready()).collect();
        if waits.is_empty() {
            std::thread::sleep(Duration::from_millis(1));
            return Ok(());
        }
        wait_for_any(waits, TICK).map_err(|errno| failed("the stream", "poll", errno))
    }

    fn tell(&mut self) {
        if self.stream.progress.is_none() || self.told.is_some_and(|told| told.elapsed() < TICK) {
            return;
        }
        let (lost_frames, gaps) = self.ledger.totals();
        let (elapsed, cpu) = self.took();
        let state = State {
            bytes: self.bytes,
            lost_frames,
            gaps,
            full: self.stream.sink.queued(),
            blocks: self.stream.ring.len(),
            elapsed,
            cpu,
        };
        self.told = Some(Instant::now());
        if let Some(callback) = &mut self.stream.progress {
            callback(state);
        }
    }

    /// Elapsed time and CPU time.
    fn took(&self) -> (Duration, Duration) {
        self.begun.map_or_else(Default::default, |(begun, cpu)| {
            (begun.elapsed(), cpu_time().saturating_sub(cpu))
        })
    }

    fn summary(&self) -> Summary {
        let gaps = self.ledger.gaps(self.bytes);
        let (elapsed, cpu) = self.took();
        Summary {
            source: self.stream.source.how(),
            sink: self.stream.sink.how(),
            bytes: self.bytes,
            loss_known: self.stream.source.tells_losses(),
            lost_frames: gaps.iter().filter_map(|gap| gap.frames).sum(),
            gaps,
            seconds: elapsed.as_secs_f64(),
            cpu_seconds: cpu.as_secs_f64(),
        }
    }
}

/// CPU time of all threads of the process.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FileSource, Filled};

    /// Returns no block.
    #[derive(Default)]
    struct Stuck(usize);

    impl Sink for Stuck {
        fn how(&self) -> String {
            "stuck".into()
        }

        fn attach(&mut self, _: &Arc<Ring>, _: Option<u64>) -> Result<()> {
            Ok(())
        }

        fn queue(&mut self, _: Filled) -> Result<()> {
            self.0 += 1;
            Ok(())
        }

        fn take(&mut self) -> Result<Option<Filled>> {
            Ok(None)
        }

        fn ready(&self) -> Option<Wait<'_>> {
            None
        }

        fn queued(&self) -> usize {
            self.0
        }

        fn finish(&mut self) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_cancelled_stream_does_not_wait_for_ever() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("samples");
        std::fs::write(&path, [7; 3000]).expect("written");
        let mut source = FileSource::open(&path, 1).expect("a file");
        let mut sink = Stuck::default();
        let token = CancelToken::new();
        let stream = Stream::new(&mut source, &mut sink, Ring::of_memfds(2, 5000));
        let cancel = token.clone();
        let stream = stream.cancel(token).progress(move |state| {
            if state.full > 0 {
                cancel.cancel();
            }
        });
        let ended = stream.run().expect_err("the sink takes nothing");
        assert_eq!(ended.error.errno().map(dmabuf_dio::Errno::raw), Some(libc::ETIMEDOUT));
        assert_eq!(ended.summary.bytes, 0);
    }
}
