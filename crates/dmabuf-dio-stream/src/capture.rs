// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocks of a source, one at a time, for programs that process them.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dmabuf_dio::Errno;

use crate::ends::{Live, Source, reading};
use crate::error::{Result, failed};
use crate::gaps::{Gap, Ledger, Loss};
use crate::ring::{BlockRing, Filled};

/// Maximum duration of one wait: see [`Wait::wait`](crate::Wait::wait).
const LOOK: Duration = Duration::from_millis(500);

/// A block of a [`Capture`], with its position among all frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Captured {
    /// The block, and how much of it is filled.
    pub filled: Filled,
    /// Number of frames from the start to the block: frames returned before it, and frames known to
    /// be lost.
    pub position: u64,
    /// The frames lost between the previous block and this one. `at` and `to` are offsets in the
    /// bytes that the capture returns. If `to` is beyond the start of the block, some of the frames
    /// are missing later, at most at `to`.
    pub gap: Option<Gap>,
    /// Whether the position is exact. It is not exact before the `to` of a gap, if the device's
    /// counter was read after frames had been lost in several places.
    pub exact: bool,
}

/// The losses of a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Number of frames, as far as known.
    pub frames: u64,
    /// Number of blocks with a gap before them.
    pub gaps: u64,
    /// Whether all losses are known. They are not if the source does not report losses, or does not
    /// report the number of lost frames.
    pub known: bool,
}

/// The location of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Nowhere: it is queued at the next start.
    Idle,
    /// With the source.
    Queued,
    /// With the program.
    Lent,
}

/// Takes blocks from a source, one at a time, and lends them to the program.
///
/// A block that the program holds is not written to until it is [released](Self::release). While
/// the program holds all blocks, a device loses frames; the next block reports this.
pub struct Capture {
    source: Box<dyn Source + Send>,
    ring: Arc<BlockRing>,
    places: Vec<Place>,
    ledger: Ledger,
    frame: u64,
    running: bool,
    /// Bytes returned since the start.
    bytes: u64,
    /// The positions of missing frames are not known up to this byte.
    unsure: u64,
    losses: Losses,
}

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ring, places, running, bytes, losses, .. } = self;
        let mut all = f.debug_struct("Capture");
        all.field("source", &self.source.facts().how).field("blocks", &ring.len());
        all.field("places", places).field("running", running).field("bytes", bytes);
        all.field("losses", losses).finish_non_exhaustive()
    }
}

impl Capture {
    /// Attaches the blocks of a ring to a source. No sample flows yet.
    ///
    /// # Errors
    ///
    /// As for [`Source::attach`]; [`Setting`](dmabuf_dio::Error::Setting) for blocks that are not
    /// whole frames.
    pub fn new(source: impl Source + Send + 'static, ring: BlockRing) -> Result<Self> {
        let mut source: Box<dyn Source + Send> = Box::new(source);
        let frame = source.facts().frame.max(1);
        if ring.size() % frame != 0 {
            let need = "a multiple of the frame size";
            let value = ring.size();
            return Err(dmabuf_dio::Error::Setting { name: "block", value, need }.into());
        }
        let ring = Arc::new(ring);
        source.attach(&ring)?;
        Ok(Self {
            source,
            places: vec![Place::Idle; ring.len()],
            ring,
            ledger: Ledger::new(Loss::Lost),
            frame,
            running: false,
            bytes: 0,
            unsure: 0,
            losses: Losses::default(),
        })
    }

    /// The blocks.
    pub fn ring(&self) -> &BlockRing {
        &self.ring
    }

    /// Bytes per frame.
    pub fn frame(&self) -> u64 {
        self.frame
    }

    /// How data gets into a block, as text for users.
    pub fn how(&self) -> String {
        self.source.facts().how
    }

    /// Whether the capture is running.
    pub fn is_running(&self) -> bool {
        self.running
    }

    /// Bytes returned since the start.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The losses from the start to the last block that was returned.
    pub fn losses(&self) -> Losses {
        Losses { known: self.losses.known && self.source.facts().tells_losses, ..self.losses }
    }

    /// Starts the flow of samples, or restarts it after a [stop](Self::stop). Positions and losses
    /// begin at 0, and blocks filled before are dropped. Does nothing if the capture is running.
    ///
    /// # Errors
    ///
    /// [`Error::Stream`](crate::Error::Stream) of the source, `ENOBUFS` if the program holds all
    /// blocks. The capture is not started then.
    pub fn start(&mut self) -> Result<()> {
        if self.running {
            return Ok(());
        }
        while self.source.take()?.is_some() {}
        for place in self.places.iter_mut().filter(|place| **place == Place::Queued) {
            *place = Place::Idle;
        }
        if !self.places.contains(&Place::Idle) {
            return Err(no_block());
        }
        self.ledger = Ledger::new(Loss::Lost);
        self.ledger.set_ahead(self.source.facts().behind);
        (self.bytes, self.unsure) = (0, 0);
        self.losses = Losses { known: true, ..Losses::default() };
        let mut started = Ok(());
        for block in 0..self.places.len() {
            if self.places[block] == Place::Idle && started.is_ok() {
                started = self.queue(block);
            }
        }
        let started = started.and_then(|()| self.source.live().map_or(Ok(()), Live::start));
        if let Err(error) = started {
            let _ = self.source.stop();
            return Err(error);
        }
        self.running = true;
        Ok(())
    }

    /// Waits for the next full block, at most for `limit`; `None` if there is none by then, or if
    /// the capture is stopped and has no more. The program owns the block until it is
    /// [released](Self::release). A signal does not end the wait.
    ///
    /// # Errors
    ///
    /// [`Error::Stream`](crate::Error::Stream): `ENODEV` if the device is gone, `ENOBUFS` if the
    /// program holds all blocks, so that none can be filled.
    pub fn next(&mut self, limit: Duration) -> Result<Option<Captured>> {
        let begin = Instant::now();
        loop {
            if let Some(filled) = self.source.take()? {
                return self.lend(filled).map(Some);
            }
            if !self.running {
                return Ok(None);
            }
            let Some(ready) = self.source.pending().ready else { return Err(no_block()) };
            let left = limit.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return Ok(None);
            }
            ready.wait(left.min(LOOK))?;
        }
    }

    /// Returns a block to the source, to be filled again.
    ///
    /// # Errors
    ///
    /// [`Setting`](dmabuf_dio::Error::Setting) for a block that the program does not hold;
    /// [`Error::Stream`](crate::Error::Stream) if the device does not accept it: the program no
    /// longer owns it, and it is queued at the next start.
    pub fn release(&mut self, block: usize) -> Result<()> {
        match self.places.get_mut(block) {
            Some(place) if *place == Place::Lent => *place = Place::Idle,
            _ => {
                let (value, need) = (block as u64, "a block that the program holds");
                return Err(dmabuf_dio::Error::Setting { name: "block", value, need }.into());
            }
        }
        if self.running { self.queue(block) } else { Ok(()) }
    }

    /// Stops the flow of samples. Full blocks can still be taken; samples in a partly filled block
    /// are lost.
    ///
    /// # Errors
    ///
    /// [`Error::Stream`](crate::Error::Stream).
    pub fn stop(&mut self) -> Result<()> {
        self.running = false;
        self.source.stop()
    }

    fn queue(&mut self, block: usize) -> Result<()> {
        let size = self.ring.size();
        let (_, was_dry) = self.source.queue(&[Filled { block, bytes: size }])?;
        let was_dry = was_dry && self.running;
        self.places[block] = Place::Queued;
        self.ledger.queued(size, was_dry);
        // The counter is read now, because a later reading may include losses at another position.
        if was_dry { self.count() } else { Ok(()) }
    }

    /// Reads how much the source has lost so far.
    fn count(&mut self) -> Result<()> {
        self.ledger.reading(reading(self.source.live())?, !self.running);
        Ok(())
    }

    fn lend(&mut self, filled: Filled) -> Result<Captured> {
        self.places[filled.block] = Place::Lent;
        // The counter includes losses in the block and before it.
        self.count()?;
        let start = self.ledger.taken(filled.bytes);
        let gap = self.ledger.pass(start);
        if let Some(gap) = gap {
            self.losses.gaps += 1;
            self.losses.frames += gap.frames.unwrap_or(0);
            self.losses.known &= gap.frames.is_some();
            self.unsure = self.unsure.max(gap.to);
        }
        self.bytes += filled.bytes;
        let position = start / self.frame + self.losses.frames;
        let exact = self.losses.known && start >= self.unsure;
        Ok(Captured { filled, position, gap, exact })
    }
}

fn no_block() -> crate::Error {
    failed("the capture", "continue: the program holds all blocks", Errno::from_raw(libc::ENOBUFS))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::ends::{Facts, Pending};
    use crate::gaps::Reading;
    use crate::wait::Wait;

    const SIZE: u64 = 80;

    /// Fills the requested number of blocks, and counts losses.
    #[derive(Debug, Default)]
    struct Told {
        full: Arc<AtomicU64>,
        lost: Arc<AtomicU64>,
        counts: bool,
        queued: VecDeque<Filled>,
        event: Option<std::os::unix::net::UnixStream>,
    }

    impl Source for Told {
        fn facts(&self) -> Facts {
            Facts { frame: 8, ..Facts::new("told") }
        }

        fn attach(&mut self, _: &Arc<BlockRing>) -> Result<()> {
            self.event = Some(std::os::unix::net::UnixStream::pair().expect("a pair").0);
            Ok(())
        }

        fn queue(&mut self, blocks: &[Filled]) -> Result<(usize, bool)> {
            let was_dry = self.is_dry()?;
            self.queued.extend(blocks);
            Ok((blocks.len(), was_dry))
        }

        fn take(&mut self) -> Result<Option<Filled>> {
            if self.full.load(Ordering::Relaxed) == 0 || self.queued.is_empty() {
                return Ok(None);
            }
            self.full.fetch_sub(1, Ordering::Relaxed);
            Ok(self.queued.pop_front())
        }

        fn pending(&self) -> Pending<'_> {
            use std::os::fd::AsFd as _;

            let event = self.event.as_ref().filter(|_| !self.queued.is_empty());
            let ready = event.map(|event| Wait::writable(event.as_fd()));
            Pending { blocks: self.queued.len(), ready }
        }

        fn stop(&mut self) -> Result<()> {
            self.queued.truncate(self.full.load(Ordering::Relaxed) as usize);
            Ok(())
        }

        fn live(&mut self) -> Option<&mut dyn Live> {
            Some(self)
        }
    }

    impl Live for Told {
        fn is_dry(&self) -> Result<bool> {
            Ok(self.queued.len() as u64 <= self.full.load(Ordering::Relaxed))
        }

        fn lost(&mut self) -> Result<Reading> {
            let lost = Reading::Count(self.lost.load(Ordering::Relaxed));
            Ok(if self.counts { lost } else { Reading::Nothing })
        }
    }

    /// A capture with four blocks of ten frames, and the numbers of full blocks and of losses.
    fn four(counts: bool) -> (Capture, Arc<AtomicU64>, Arc<AtomicU64>) {
        let source = Told { counts, ..Told::default() };
        let (full, lost) = (Arc::clone(&source.full), Arc::clone(&source.lost));
        let ring = BlockRing::of_memfds(4, SIZE);
        (Capture::new(source, ring).expect("attached"), full, lost)
    }

    fn now(capture: &mut Capture) -> Captured {
        capture.next(Duration::ZERO).expect("taken").expect("a block")
    }

    fn errno(result: Result<Option<Captured>>) -> Option<i32> {
        result.expect_err("refused").errno().map(Errno::raw)
    }

    #[test]
    fn blocks_arrive_in_order_and_are_reused() {
        let (mut capture, full, _) = four(true);
        assert_eq!(capture.next(Duration::MAX).expect("not started"), None);
        capture.start().expect("started");
        assert_eq!(capture.next(Duration::from_millis(2)).expect("none is full"), None);
        for round in 0..10 {
            full.store(1, Ordering::Relaxed);
            let captured = now(&mut capture);
            let filled = Filled { block: round % 4, bytes: SIZE };
            assert_eq!(
                captured,
                Captured { filled, position: 10 * round as u64, gap: None, exact: true }
            );
            capture.release(filled.block).expect("released");
        }
        assert_eq!(capture.losses(), Losses { frames: 0, gaps: 0, known: true });
        assert_eq!((capture.bytes(), capture.frame()), (10 * SIZE, 8));
        for block in [2, 4] {
            let error = capture.release(block).expect_err("the program does not have it");
            assert!(error.to_string().contains("holds"), "{error}");
        }
    }

    #[test]
    fn gap_is_reported_with_the_following_block() {
        let (mut capture, full, lost) = four(true);
        capture.start().expect("started");
        full.store(4, Ordering::Relaxed);
        lost.store(3, Ordering::Relaxed);
        for block in 0..4 {
            let captured = now(&mut capture);
            assert_eq!((captured.filled.block, captured.gap), (block, None));
        }
        assert_eq!(errno(capture.next(Duration::MAX)), Some(libc::ENOBUFS));
        lost.store(7, Ordering::Relaxed);
        for block in [2, 0, 1, 3] {
            capture.release(block).expect("released");
        }
        full.store(1, Ordering::Relaxed);
        let captured = now(&mut capture);
        let at = 4 * SIZE;
        let gap = Gap { kind: Loss::Lost, at, to: at, frames: Some(7) };
        assert_eq!((captured.position, captured.gap), (47, Some(gap)));
        assert!(captured.exact);
        // The device loses two more frames by itself, in an unknown block.
        lost.store(9, Ordering::Relaxed);
        full.store(1, Ordering::Relaxed);
        let captured = now(&mut capture);
        let gap = Gap { kind: Loss::Lost, at, to: 8 * SIZE, frames: Some(2) };
        assert_eq!((captured.position, captured.gap), (59, Some(gap)));
        assert!(!captured.exact);
        // The positions of blocks that were queued by then are uncertain, the next one's is not.
        for exact in [false, false, true] {
            capture.release(captured.filled.block).unwrap_or_default();
            full.store(1, Ordering::Relaxed);
            assert_eq!(now(&mut capture).exact, exact);
        }
        assert_eq!(capture.losses(), Losses { frames: 9, gaps: 2, known: true });
    }

    #[test]
    fn gap_without_a_counter_has_no_length() {
        let (mut capture, full, _) = four(false);
        capture.start().expect("started");
        full.store(4, Ordering::Relaxed);
        for _ in 0..4 {
            now(&mut capture);
        }
        capture.release(1).expect("released");
        full.store(1, Ordering::Relaxed);
        let captured = now(&mut capture);
        assert_eq!(captured.gap.map(|gap| (gap.at, gap.frames)), Some((4 * SIZE, None)));
        assert_eq!((captured.position, captured.exact), (40, false));
        assert!(!capture.losses().known);
    }

    #[test]
    fn capture_can_be_stopped_and_restarted() {
        let (mut capture, full, lost) = four(true);
        capture.start().expect("started");
        full.store(2, Ordering::Relaxed);
        let kept = now(&mut capture);
        capture.stop().expect("stopped");
        lost.store(5, Ordering::Relaxed);
        assert_eq!(now(&mut capture).gap, None, "lost when nobody asked for it");
        assert_eq!(capture.next(Duration::MAX).expect("no more"), None);
        lost.store(0, Ordering::Relaxed);
        capture.start().expect("started again");
        full.store(2, Ordering::Relaxed);
        let blocks = [now(&mut capture), now(&mut capture)].map(|one| one.filled.block);
        assert_eq!(blocks, [2, 3], "the program still has the others");
        assert_eq!(capture.bytes(), 2 * SIZE);
        capture.release(kept.filled.block).expect("released");
        full.store(1, Ordering::Relaxed);
        assert_eq!(now(&mut capture).filled.block, kept.filled.block);
        capture.stop().expect("stopped");
        assert_eq!(
            capture.start().err().and_then(|error| error.errno()).map(Errno::raw),
            Some(libc::ENOBUFS)
        );
    }

    #[test]
    fn blocks_are_whole_frames() {
        assert!(Capture::new(Told::default(), BlockRing::of_memfds(2, 81)).is_err());
    }
}
