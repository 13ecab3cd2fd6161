// SPDX-License-Identifier: MIT OR Apache-2.0
//! Passes blocks from a source to a sink and back.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use dmabuf_dio::Errno;

use crate::ends::{Sink, Source, reading};
use crate::error::{Error, Result, failed};
use crate::gaps::{Gap, Ledger, Loss, Reading};
use crate::ring::{BlockRing, Filled, RingUse, multiple};
use crate::v4l2::log::FrameLog;
use crate::wait::{TICK, Wait, wait_for_any};
use dmabuf_dio::CancelToken;

/// How long a sink may take for a block after the stream was cancelled.
pub(super) const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 30 });
/// How much longer than its nominal time a device that does not report losses may take. If it takes
/// longer, it does not run at its rate.
const SLACK: Duration = Duration::from_secs(10);
/// How often the device's loss counter is read while it always has a block.
const COUNT: Duration = Duration::from_millis(10);

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

/// The result of a stream.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Summary {
    /// How data got from the source into the blocks.
    pub source: String,
    /// How data got from the blocks to the sink.
    pub sink: String,
    /// The blocks.
    pub ring: RingUse,
    /// Bytes delivered to the sink.
    pub bytes: u64,
    /// Whether that is everything requested: `false` if the stream ended before its limit, its time
    /// or the end of the source, or before its first block.
    pub complete: bool,
    /// Number of frames that the source lost, and that the sink could not output because it had
    /// none (underruns), as far as known.
    pub lost_frames: u64,
    /// The positions of these gaps, and which end lost the frames.
    pub gaps: Vec<Gap>,
    /// Whether source and sink can detect lost frames. If not, there may be further gaps.
    pub loss_known: bool,
    /// When the samples began; `None` if there are none.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub begin: Option<Begin>,
    /// Seconds from the start of the source to the end.
    pub seconds: f64,
    /// CPU time of all threads of this process during that time, in seconds; `None` if the source
    /// was not started.
    pub cpu_seconds: Option<f64>,
}

/// When the samples of a stream began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begin {
    /// When the source was started.
    pub started: SystemTime,
    /// When its first block was full.
    pub arrived: SystemTime,
    /// The length of that block in bytes.
    pub bytes: u64,
}

impl Begin {
    /// When the first sample came, for a device of so many bytes per second. Without a rate only the
    /// arrival of the first block is known, which is later.
    pub fn first_sample(&self, bytes_per_second: Option<f64>) -> SystemTime {
        let seconds = bytes_per_second.map_or(0.0, |rate| self.bytes as f64 / rate);
        let length = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        let first = self.arrived.checked_sub(length).unwrap_or(self.arrived);
        first.max(self.started)
    }
}

/// What is known of the data of a stream while it runs.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Known<'s> {
    /// Bytes delivered to the sink. What is known to be missing in them is in `gaps`.
    pub bytes: u64,
    /// As [`Summary::gaps`], up to these bytes.
    pub gaps: Vec<Gap>,
    /// As [`Summary::loss_known`].
    pub loss_known: bool,
    /// When the samples began.
    pub begin: Option<Begin>,
    /// The frames of a video device.
    pub frames: Option<&'s FrameLog>,
}

/// The progress of a stream.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct State {
    /// Bytes delivered to the sink.
    pub bytes: u64,
    /// Number of lost frames, underruns included, as far as known.
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
type Recorder<'s> = dyn FnMut(&Known<'_>) + 's;

/// How long a stream lasts.
#[derive(Clone, Copy, Debug)]
struct Time {
    frames: Option<u64>,
    seconds: Duration,
}

/// A source, a sink, and the blocks that circulate between them.
///
/// Neither `Send` nor `Sync`: it runs on the thread that creates it. Do not use it in a child of
/// `fork(2)`: the parent's devices and rings are shared with it.
pub struct Stream<'s> {
    source: &'s mut dyn Source,
    sink: &'s mut dyn Sink,
    ring: Arc<BlockRing>,
    overrun: Overrun,
    limit: Option<u64>,
    time: Option<Time>,
    cut: Option<u64>,
    cancel: CancelToken,
    progress: Option<Box<Callback<'s>>>,
    recorder: Option<Box<Recorder<'s>>>,
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

    /// Ends a block after every `bytes` bytes, rounded down to whole frames and to what the source
    /// fills at least ([`Facts::align`](crate::Facts::align)), at least once that: for a
    /// [`RotatingSink`](crate::RotatingSink), whose files begin with a block.
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

    /// Tells what is known of the data about every 100 ms, for a record that is kept if the process is
    /// killed. Called from the thread that runs the stream: it must not take long.
    #[must_use]
    pub fn record(mut self, recorder: impl FnMut(&Known<'_>) + 's) -> Self {
        self.recorder = Some(Box::new(recorder));
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
        let facts = self.source.facts();
        let limit = match (self.limit, facts.len) {
            (Some(limit), Some(len)) => Some(limit.min(len)),
            (limit, len) => limit.or(len),
        };
        let frame = facts.frame.max(1);
        let mut run = Run {
            limit: limit.map(|limit| limit / frame * frame),
            span: self.time.and_then(|time| time.frames?.checked_mul(frame)),
            frame,
            ledger: Ledger::new(Loss::Lost),
            output: Ledger::new(Loss::Underrun),
            stream: self,
            bytes: 0,
            asked: 0,
            over: false,
            grows: false,
            overflowed: false,
            begun: None,
            started: None,
            begin: None,
            told: None,
            recorded: None,
            counted: Instant::now(),
        };
        let mut result = run.go();
        if result.is_err() {
            // Losses up to here are reported even so.
            let _ = run.count();
            run.stream.cancel.cancel();
        }
        if let Err(error) = run.stream.source.stop() {
            result = result.and(Err(error));
        }
        if result.is_err() {
            // Blocks that the source has delivered are still passed on.
            run.stream.cancel.cancel();
            if run.overflowed {
                // These blocks came before the loss.
                let _ = run.pass_on();
            }
            let _ = run.drain();
        }
        // While the sink still counts.
        let _ = run.count_output(true);
        run.set_told();
        let asked = run.limit.is_some() || run.stream.time.is_some();
        let complete = result.is_ok() && (run.over || !asked && run.bytes > 0);
        let finished = run.stream.sink.finish();
        let mut summary = run.summary();
        summary.complete = complete && finished.is_ok();
        match result.and(finished) {
            Ok(()) => Ok(summary),
            Err(error) => Err(Box::new(Interrupted { error, summary })),
        }
    }
}

struct Run<'s> {
    stream: Stream<'s>,
    /// In bytes: of the data, and of the device's time.
    limit: Option<u64>,
    span: Option<u64>,
    frame: u64,
    /// What the source lost, and what the sink lacked.
    ledger: Ledger,
    output: Ledger,
    /// Bytes that the sink has finished.
    bytes: u64,
    /// Bytes requested from the source.
    asked: u64,
    /// The ring can get more blocks.
    grows: bool,
    /// A loss ends the stream.
    overflowed: bool,
    /// Everything requested has arrived, or its time is over.
    over: bool,
    /// When the source was started, and the CPU time until then.
    begun: Option<(Instant, Duration)>,
    started: Option<SystemTime>,
    /// Once there is a sample.
    begin: Option<Begin>,
    told: Option<Instant>,
    recorded: Option<Instant>,
    /// When the counters were last read.
    counted: Instant,
}

impl Run<'_> {
    fn go(&mut self) -> Result<()> {
        let ring = Arc::clone(&self.stream.ring);
        let size = ring.size();
        if size % self.frame != 0 {
            let need = "a multiple of the frame size";
            return Err(dmabuf_dio::Error::Setting { name: "block", value: size, need }.into());
        }
        self.stream.source.attach(&ring)?;
        // A source would discard what it fills beyond a cut.
        let facts = self.stream.source.facts();
        let unit = multiple(facts.align, self.frame);
        self.stream.cut = self.stream.cut.map(|cut| (cut / unit).max(1).saturating_mul(unit));
        let expected = self.limit.into_iter().chain(self.span).min();
        self.stream.sink.attach(&ring, expected)?;
        self.output.set_behind(self.stream.sink.facts().behind);
        self.fill(&(0..ring.len()).collect::<Vec<_>>())?;
        self.grows = ring.most() > ring.len() && !facts.waits && facts.len.is_none();
        self.begun = Some((Instant::now(), cpu_time()));
        self.tell();
        self.started = Some(SystemTime::now());
        if let Some(live) = self.stream.source.live() {
            live.start()?;
        }
        loop {
            self.take_back()?;
            self.pass_on()?;
            if !self.all_asked_for() {
                self.grow()?;
            }
            if self.counted.elapsed() >= COUNT {
                self.count()?;
                self.count_output(false)?;
            }
            self.tell();
            self.set_told();
            self.record()?;
            let ended = self.stream.source.has_ended();
            self.over |= if ended {
                self.limit.is_none() && self.stream.time.is_none()
            } else {
                self.all_asked_for() && self.stream.source.pending().blocks == 0
            };
            if self.is_late()? || self.over || ended || self.stream.cancel.is_cancelled() {
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
        self.stream.sink.flush()?;
        let mut moved = Instant::now();
        while self.stream.sink.pending().blocks > 0 {
            while self.taken()?.is_some() {
                moved = Instant::now();
            }
            if self.counted.elapsed() >= COUNT {
                self.count_output(true)?;
            }
            self.tell();
            if self.stream.cancel.is_cancelled() && moved.elapsed() > PATIENCE {
                return Err(failed("the sink", "accept its blocks", Errno::TIMEDOUT));
            }
            if self.stream.sink.pending().blocks > 0 {
                self.wait(false)?;
            }
        }
        Ok(())
    }

    fn all_asked_for(&self) -> bool {
        self.left() == 0
    }

    /// Bytes that are still to be requested from the source.
    fn left(&self) -> u64 {
        let left = self.limit.map_or(u64::MAX, |limit| limit.saturating_sub(self.asked));
        let Some(span) = self.span else { return left };
        let lost = self.ledger.totals().0.saturating_add(self.output.totals().0);
        left.min(span.saturating_sub(self.asked).saturating_sub(lost.saturating_mul(self.frame)))
    }

    /// Whether the clock ends the stream. It does as soon as the time is over if the device cannot
    /// say how much of its time is.
    fn is_late(&mut self) -> Result<bool> {
        let (Some(time), Some((begun, _))) = (self.stream.time, self.begun) else {
            return Ok(false);
        };
        let elapsed = begun.elapsed();
        if elapsed < time.seconds {
            return Ok(false);
        }
        let by_clock = self.span.is_none()
            || self.ledger.is_uncounted()
            || self.output.is_uncounted()
            || matches!(self.count()?, (Reading::Noted(_) | Reading::Nothing, true));
        self.over |= by_clock;
        Ok(by_clock || elapsed >= time.seconds.saturating_add(SLACK))
    }

    /// The part of a full block that is within the device's time, if any.
    fn in_time(&mut self, start: u64, filled: Filled) -> Option<Filled> {
        let Some(span) = self.span else { return Some(filled) };
        let lost = self.ledger.lost_before(start).saturating_add(self.output.totals().0);
        let left = span.saturating_sub(start).saturating_sub(lost.saturating_mul(self.frame));
        self.over |= left <= filled.bytes;
        (left > 0).then(|| Filled { bytes: filled.bytes.min(left), ..filled })
    }

    /// Takes a block back from the sink.
    fn taken(&mut self) -> Result<Option<Filled>> {
        let taken = self.stream.sink.take()?;
        if let Some(filled) = taken {
            self.bytes += filled.bytes;
            self.output.taken(filled.bytes);
        }
        Ok(taken)
    }

    /// Takes blocks back from the sink and queues them to the source again.
    fn take_back(&mut self) -> Result<()> {
        let mut empty = Vec::new();
        while let Some(filled) = self.taken()? {
            empty.push(filled.block);
        }
        self.fill(&empty)
    }

    /// Adds blocks to the ring while the sink has most of them: later the device would lose frames.
    fn grow(&mut self) -> Result<()> {
        let begin = Instant::now();
        while self.grows && begin.elapsed() < COUNT {
            let Stream { source, sink, ring, cancel, .. } = &mut self.stream;
            if 2 * source.pending().blocks >= ring.len() || cancel.is_cancelled() {
                return Ok(());
            }
            let Some(block) = ring.add() else {
                self.grows = false;
                return Ok(());
            };
            self.grows = source.attach_more(block)? && sink.attach_more(block)?;
            if self.grows {
                self.fill(&[block])?;
            }
        }
        Ok(())
    }

    /// Queues empty blocks to the source, as many at a time as suit it, unless enough has been
    /// requested.
    fn fill(&mut self, mut blocks: &[usize]) -> Result<()> {
        while !blocks.is_empty() && !self.stream.cancel.is_cancelled() {
            let (asked, mut batch) = (self.asked, Vec::with_capacity(blocks.len()));
            for &block in blocks {
                let to_cut = self.stream.cut.map_or(u64::MAX, |cut| cut - self.asked % cut);
                let bytes = self.stream.ring.size().min(self.left()).min(to_cut);
                if bytes > 0 {
                    self.asked += bytes;
                    batch.push(Filled { block, bytes });
                }
            }
            self.asked = asked;
            if batch.is_empty() {
                return Ok(());
            }
            let (count, was_dry) = self.stream.source.queue(&batch)?;
            let was_dry = was_dry && self.begun.is_some();
            blocks = &blocks[count..];
            for filled in &batch[..count] {
                self.asked += filled.bytes;
                self.ledger.queued(filled.bytes, was_dry);
            }
            if was_dry && !self.ledger.waits() {
                self.count()?;
            }
        }
        Ok(())
    }

    /// What a video device has left out.
    fn set_told(&mut self) {
        if let Some(log) = self.stream.source.frame_log() {
            self.ledger.set_told(log.gaps());
        }
    }

    /// Reads how much the source has lost so far.
    fn count(&mut self) -> Result<(Reading, bool)> {
        let reading = reading(self.stream.source.live())?;
        self.ledger.reading(reading, self.all_asked_for());
        self.counted = Instant::now();
        if self.stream.overrun == Overrun::Fail && self.ledger.totals().1 > 0 && !self.overflowed {
            self.overflowed = true;
            return Err(failed("the sink", "keep up with the source", Errno::OVERFLOW));
        }
        Ok(reading)
    }

    /// Reads how many frames the sink has lacked so far. `last`: it gets no more blocks.
    fn count_output(&mut self, last: bool) -> Result<()> {
        self.output.reading(reading(self.stream.sink.live())?, last);
        self.counted = Instant::now();
        Ok(())
    }

    /// Gives a full block to the sink.
    fn output(&mut self, filled: Filled) -> Result<()> {
        let was_dry = self.stream.sink.queue(filled)?;
        self.output.queued(filled.bytes, was_dry);
        if was_dry && !self.output.waits() { self.count_output(false) } else { Ok(()) }
    }

    /// Gives full blocks to the sink. Those that were full before the source failed are kept.
    fn pass_on(&mut self) -> Result<()> {
        if self.span.is_some() && (self.all_asked_for() || self.ledger.is_unread()) {
            // What was lost before these blocks.
            self.count()?;
        }
        let mut full = Vec::new();
        let end = loop {
            match self.stream.source.take() {
                Ok(Some(filled)) => full.push(filled),
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        if let (None, Some(started), Some(first)) = (self.begin, self.started, full.first()) {
            let arrived = SystemTime::now();
            self.begin = Some(Begin { started, arrived, bytes: first.bytes });
        }
        for filled in full {
            let start = self.ledger.taken(filled.bytes);
            if let Some(filled) = self.in_time(start, filled) {
                self.output(filled)?;
            }
        }
        end
    }

    /// Waits until there may be something to do.
    fn wait(&self, source: bool) -> Result<()> {
        let ready = if source { self.stream.source.pending().ready } else { None };
        let sink = self.stream.sink.pending().ready;
        let waits: Vec<Wait<'_>> = ready.into_iter().chain(sink).collect();
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
        let (lost, missed) = (self.ledger.totals(), self.output.totals());
        let remote = self.ledger.told_totals();
        let lost_frames = (lost.0 + missed.0).saturating_add(remote.0);
        let gaps = lost.1 + missed.1 + remote.1;
        let (elapsed, cpu) = self.took().unwrap_or_default();
        let state = State {
            bytes: self.bytes,
            lost_frames,
            gaps,
            full: self.stream.sink.pending().blocks,
            blocks: self.stream.ring.len(),
            elapsed,
            cpu,
        };
        self.told = Some(Instant::now());
        if let Some(callback) = &mut self.stream.progress {
            callback(state);
        }
    }

    /// Tells what is known of the data.
    fn record(&mut self) -> Result<()> {
        if self.stream.recorder.is_none()
            || self.recorded.is_some_and(|recorded| recorded.elapsed() < TICK)
        {
            return Ok(());
        }
        // Up to here all losses are known then.
        self.count()?;
        self.recorded = Some(Instant::now());
        let known = Known {
            bytes: self.bytes,
            gaps: self.ledger.gaps(self.bytes, false),
            loss_known: self.tells_losses(),
            begin: self.begin,
            frames: self.stream.source.frame_log(),
        };
        if let Some(recorder) = &mut self.stream.recorder {
            recorder(&known);
        }
        Ok(())
    }

    fn tells_losses(&self) -> bool {
        self.stream.source.facts().tells_losses && self.stream.sink.facts().tells_losses
    }

    /// Elapsed time and CPU time since the start of the source.
    fn took(&self) -> Option<(Duration, Duration)> {
        self.begun.map(|(begun, cpu)| (begun.elapsed(), cpu_time().saturating_sub(cpu)))
    }

    /// Removes from the last gap what was lost after the end of the device's time.
    fn trim(&self, gaps: &mut Vec<Gap>) {
        let Some(span) = self.span.filter(|_| self.ledger.told_totals().1 == 0) else { return };
        let lost: u64 = gaps.iter().filter_map(|gap| gap.frames).sum();
        let beyond = (self.bytes / self.frame + lost).saturating_sub(span / self.frame);
        let Some(last) = gaps.last_mut() else { return };
        last.frames = last.frames.map(|frames| frames.saturating_sub(beyond));
        if last.frames == Some(0) {
            gaps.pop();
        }
    }

    fn gaps(&self) -> Vec<Gap> {
        let mut gaps =
            self.ledger.gaps(self.bytes, self.overflowed || self.span.is_some() && self.over);
        gaps.extend(self.output.gaps(self.bytes, false));
        gaps.sort_by_key(|gap| (gap.at, gap.to));
        self.trim(&mut gaps);
        gaps
    }

    fn summary(&self) -> Summary {
        let gaps = self.gaps();
        let took = self.took();
        Summary {
            source: self.stream.source.facts().how,
            sink: self.stream.sink.facts().how,
            bytes: self.bytes,
            ring: self.stream.ring.usage(),
            complete: false,
            loss_known: self.tells_losses(),
            begin: self.begin,
            lost_frames: gaps.iter().filter_map(|gap| gap.frames).fold(0, u64::saturating_add),
            gaps,
            seconds: took.map_or(0.0, |(elapsed, _)| elapsed.as_secs_f64()),
            cpu_seconds: took.map(|(_, cpu)| cpu.as_secs_f64()),
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
    use crate::{Facts, FileSource, Filled, Pending};

    /// Returns no block.
    #[derive(Default)]
    struct Stuck(usize);

    impl Sink for Stuck {
        fn facts(&self) -> Facts {
            Facts::new("stuck")
        }

        fn attach(&mut self, _: &Arc<BlockRing>, _: Option<u64>) -> Result<()> {
            Ok(())
        }

        fn queue(&mut self, _: Filled) -> Result<bool> {
            self.0 += 1;
            Ok(false)
        }

        fn take(&mut self) -> Result<Option<Filled>> {
            Ok(None)
        }

        fn pending(&self) -> Pending<'_> {
            Pending { blocks: self.0, ready: None }
        }

        fn finish(&mut self) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn cancelled_stream_stops_waiting() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("samples");
        std::fs::write(&path, [7; 3000]).expect("written");
        let mut source = FileSource::open(&path, 1).expect("a file");
        let mut sink = Stuck::default();
        let token = CancelToken::new();
        let stream = Stream::new(&mut source, &mut sink, BlockRing::of_memfds(2, 5000));
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
