// SPDX-License-Identifier: MIT OR Apache-2.0
//! The loop of a stream.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use dmabuf_dio::Errno;

use super::stream::Stream;
use super::summary::{Begin, Interrupted, Summary};
use crate::error::{Result, failed};
use crate::gaps::{Ledger, Loss};
use crate::ring::multiple;
use crate::wait::{TICK, Wait, wait_for_any};

/// How long a sink may take for a block after the stream was cancelled.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 30 });
/// How often the device's loss counter is read while it always has a block.
pub(super) const COUNT: Duration = Duration::from_millis(10);

impl Stream<'_> {
    /// Runs until the limit, the end of the source, a cancellation or an error; blocks until then.
    /// By then all data given to the sink has been delivered. If the sink itself failed, the
    /// summary says how much was.
    ///
    /// # Errors
    ///
    /// [`Error::Stream`](crate::Error::Stream) of the source or the sink; `EOVERFLOW` if frames were
    /// lost with [`Overrun::Fail`](crate::Overrun::Fail). [`Setting`](dmabuf_dio::Error::Setting) if
    /// blocks are not whole frames.
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
        // The sink still counts at this point.
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

/// A running stream.
pub(super) struct Run<'s> {
    pub(super) stream: Stream<'s>,
    /// Limits in bytes: of the data, and of the device's time.
    pub(super) limit: Option<u64>,
    pub(super) span: Option<u64>,
    pub(super) frame: u64,
    /// The losses of the source, and the underruns of the sink.
    pub(super) ledger: Ledger,
    pub(super) output: Ledger,
    /// Bytes that the sink has finished.
    pub(super) bytes: u64,
    /// Bytes requested from the source.
    pub(super) asked: u64,
    /// The ring can get more blocks.
    pub(super) grows: bool,
    /// A loss ends the stream.
    pub(super) overflowed: bool,
    /// Everything requested has arrived, or its time is over.
    pub(super) over: bool,
    /// When the source was started, and the CPU time until then.
    pub(super) begun: Option<(Instant, Duration)>,
    pub(super) started: Option<SystemTime>,
    /// Set once there is a sample.
    pub(super) begin: Option<Begin>,
    pub(super) told: Option<Instant>,
    pub(super) recorded: Option<Instant>,
    /// When the counters were last read.
    pub(super) counted: Instant,
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
        self.ledger.set_ahead(facts.behind);
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
        // Blocks that became full before the source stopped.
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

    /// Elapsed time and CPU time since the start of the source.
    pub(super) fn took(&self) -> Option<(Duration, Duration)> {
        self.begun.map(|(begun, cpu)| (begun.elapsed(), cpu_time().saturating_sub(cpu)))
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
    use dmabuf_dio::CancelToken;

    use super::*;
    use crate::ring::BlockRing;
    use crate::{Facts, FileSource, Filled, Pending, Sink};

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
