// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocks that are queued on a device as dma-bufs. A fence signals their completion.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dmabuf_dio::{Buffer, Errno};
use dmabuf_dio_sys::dmabuf::{self, Access};
use dmabuf_dio_sys::sync_file;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno as Os;

use crate::ends::Pending;
use crate::error::{Result, failed, from_os};
use crate::ring::{BlockRing, Claim, Filled, attached};
use crate::wait::Wait;

/// A consumer or producer of dma-bufs: a buffer of an IIO device, or an endpoint of a USB function.
pub(super) trait Port {
    /// The name in error messages.
    fn name(&self) -> &str;
    fn attach(&self, dmabuf: BorrowedFd<'_>) -> dmabuf_dio_sys::Result<()>;
    fn enqueue(&self, dmabuf: BorrowedFd<'_>, bytes: u64) -> dmabuf_dio_sys::Result<()>;
    /// Whether the device is present and has not cancelled the queued blocks.
    fn is_running(&self) -> bool;
}

/// Wake-ups are bundled for no longer than this: blocks that come faster are queued, and taken,
/// several at a time.
const BUNDLE: Duration = Duration::from_millis(1);
/// Most blocks of a batch.
const MOST: usize = 32;
/// Most fences that are looked at in one call.
const LOOK: usize = 4;
/// If no blocks were found for this time, a batch is split: blocks arrive more slowly than expected.
const LATE: Duration = Duration::from_millis(10);

/// A block that is queued on the device.
#[derive(Debug)]
struct Queued {
    filled: Filled,
    /// The `sync_file` of the device's fence; `None` if a later block of the same batch has the
    /// batch's. It is taken right after queueing, because the dma-buf does not report later how the
    /// work ended.
    done: Option<OwnedFd>,
}

/// Whether a `sync_file` has been signalled. Polled before its status is queried, which makes it
/// compose its name each time.
fn is_signalled(fence: &OwnedFd) -> dmabuf_dio_sys::Result<bool> {
    Ok(signalled(&[fence.as_fd()])?[0])
}

/// Tells which fences, or dma-bufs, have been signalled. Looks at them in this order.
fn signalled(fds: &[BorrowedFd<'_>]) -> dmabuf_dio_sys::Result<Vec<bool>> {
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut fds: Vec<_> =
        fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    match poll(&mut fds, Some(&at_once)) {
        Ok(_) | Err(Os::INTR) => Ok(fds.iter().map(|fd| !fd.revents().is_empty()).collect()),
        Err(errno) => Err(from_os(errno)),
    }
}

fn is_done(fence: &OwnedFd) -> dmabuf_dio_sys::Result<bool> {
    Ok(is_signalled(fence)? && sync_file::status(fence.as_fd())?)
}

/// The blocks queued on a device, in order.
///
/// Blocks at a high rate are queued in batches. A batch has one fence: the fence of its last block.
/// A device finishes blocks in order, and an abort of one block aborts all blocks behind it.
///
/// Field order matters: fences are dropped before the port. The lock of a functionfs fence (7.3)
/// lies in the endpoint's state for the block, and closing a polled `sync_file` takes it.
#[derive(Debug)]
pub(super) struct Fenced<P> {
    queued: VecDeque<Queued>,
    /// So many of the first are done.
    known: usize,
    pub(super) port: P,
    /// The access that the device's access excludes.
    wait_for: Access,
    ring: Option<Arc<BlockRing>>,
    pace: Pace,
}

/// How fast blocks come.
#[derive(Debug)]
struct Pace {
    /// `None` until two looks have found blocks.
    each: Option<Duration>,
    /// When blocks were last found, or queued to a device that had none.
    looked: Option<Instant>,
    /// It had none left by then.
    was_dry: bool,
}

impl Pace {
    /// Records that `count` more blocks were found done, all of them if the device is `dry`: then it
    /// may have waited, and its speed is unknown.
    fn found(&mut self, count: usize, dry: bool, now: Instant) {
        let was_dry = std::mem::replace(&mut self.was_dry, dry);
        let before = self.looked.replace(now).filter(|_| !was_dry && !dry);
        if let Some(before) = before {
            let each = now.duration_since(before) / u32::try_from(count).unwrap_or(u32::MAX).max(1);
            self.each = Some(self.each.map_or(each, |old| (old * 3 + each) / 4));
        }
    }

    /// Records that the device has got blocks again.
    fn goes_on(&mut self, now: Instant) {
        if self.looked.is_some() {
            (self.looked, self.was_dry) = (Some(now), false);
        }
    }

    /// Blocks that arrive within [`BUNDLE`], at least 1. Before the first has arrived, all `queued`
    /// blocks: the first two arrive alone, and show the rate.
    fn batch(&self, queued: usize) -> usize {
        let fits = |each: Duration| BUNDLE.as_nanos() / each.as_nanos().max(1);
        let batch = match self.each {
            Some(each) => usize::try_from(fits(each)).unwrap_or(MOST),
            None if self.looked.is_none() => queued,
            None => 1,
        };
        batch.clamp(1, MOST)
    }

    /// Whether a batch of `count` blocks takes too long for one wake-up.
    fn is_slow(&self, count: usize, now: Instant) -> bool {
        self.each.is_some() && self.batch(1) < count
            || self.looked.is_some_and(|looked| now.duration_since(looked) > LATE)
    }
}

impl<P: Port> Fenced<P> {
    /// A device that fills blocks.
    pub(super) fn filling(port: P) -> Self {
        Self::new(port, Access::Read)
    }

    /// A device that reads blocks.
    pub(super) fn emptying(port: P) -> Self {
        Self::new(port, Access::Write)
    }

    fn new(port: P, wait_for: Access) -> Self {
        let pace = Pace { each: None, looked: None, was_dry: false };
        Self { port, wait_for, ring: None, queued: VecDeque::new(), known: 0, pace }
    }

    /// Attaches all blocks. The device holds them until the port is closed.
    pub(super) fn attach(&mut self, ring: &Arc<BlockRing>) -> Result<(), Errno> {
        for block in ring.blocks() {
            self.port.attach(block.fd().map_err(|_| Errno::BADF)?)?;
        }
        self.ring = Some(Arc::clone(ring));
        Ok(())
    }

    /// Attaches a block that the ring has got since.
    pub(super) fn attach_more(&mut self, block: usize) -> Result<bool> {
        let name = self.port.name();
        let block = attached(self.ring.as_ref(), name)?.block(block).fd()?;
        let attached = self.port.attach(block);
        attached.map(|()| true).map_err(|errno| failed(name, "attach a block", errno))
    }

    /// Queues a block.
    pub(super) fn queue(&mut self, filled: Filled) -> Result<()> {
        let claim = self.claim(filled)?;
        self.enqueue(claim, claim.bytes())?;
        let fence = self.fence(claim)?;
        self.check_running(&fence)?;
        self.queued.push_back(Queued { filled, done: Some(fence) });
        Ok(())
    }

    /// Queues the first of these blocks as one batch. The device fills a multiple of `align` bytes
    /// of each block, which may be more than requested. Returns how many it has queued, and whether
    /// the device was, or may have been, out of work by then.
    pub(super) fn queue_and_look(
        &mut self,
        blocks: &[Filled],
        align: u64,
    ) -> Result<(usize, bool)> {
        // At most half of the ring, so that the device works on the others.
        let half = self.ring.as_ref().map_or(1, |ring| ring.len() / 2);
        let most = self.pace.batch(self.queued.len()).min(half).max(1);
        let batch = &blocks[..most.min(blocks.len())];
        let mut claims = Vec::with_capacity(batch.len());
        for &filled in batch {
            let claim = self.claim(filled)?;
            let bytes = claim.bytes().next_multiple_of(align);
            claims.push((claim, self.claim(Filled { bytes, ..filled })?.bytes()));
        }
        for &(claim, length) in &claims {
            self.enqueue(claim, length)?;
        }
        let Some(((last, _), others)) = claims.split_last() else { return Ok((0, false)) };
        let fence = self.fence(*last)?;
        let ring = attached(self.ring.as_ref(), self.port.name())?;
        // The order is from the last to the first, then the one ahead of them, because the device
        // goes on meanwhile.
        let ahead = self.queued.back().and_then(|queued| queued.done.as_ref());
        let others = others.iter().rev().map(|(claim, _)| ring.block(claim.block()).fd());
        let fences = [Ok(fence.as_fd())].into_iter().chain(others);
        let all = fences.chain(ahead.map(|fence| Ok(fence.as_fd())));
        let all = all.collect::<Result<Vec<_>, dmabuf_dio::Error>>()?;
        let done = signalled(&all).map_err(|errno| self.ended(errno))?;
        if done[0] {
            self.check_running(&fence)?;
        }
        let was_idle = match ahead {
            Some(ahead) if done.last() == Some(&true) => {
                sync_file::status(ahead.as_fd()).map_err(|errno| self.ended(errno))?
            }
            ahead => ahead.is_none(),
        };
        // A block that finished before the one ahead of it: the driver has refused it. ENQUEUE
        // does not report that, and the dma-buf does not tell how a signalled fence ended.
        if done.windows(2).any(|pair| pair[0] && !pair[1]) {
            return Err(failed(self.port.name(), "fill a block", Errno::IO));
        }
        if was_idle {
            self.pace.goes_on(Instant::now());
        }
        self.queued.extend(batch.iter().map(|&filled| Queued { filled, done: None }));
        if let Some(last) = self.queued.back_mut() {
            last.done = Some(fence);
        }
        Ok((batch.len(), was_idle))
    }

    /// A block that has room for this.
    pub(super) fn block(&self, filled: Filled) -> Result<&Buffer> {
        let ring = attached(self.ring.as_ref(), self.port.name())?;
        Ok(ring.block(ring.claim(filled)?.block()))
    }

    fn claim(&self, filled: Filled) -> Result<Claim> {
        attached(self.ring.as_ref(), self.port.name())?.claim(filled)
    }

    fn enqueue(&self, claim: Claim, length: u64) -> Result<()> {
        let block = attached(self.ring.as_ref(), self.port.name())?.block(claim.block()).fd()?;
        let queued = self.port.enqueue(block, length);
        queued.map_err(|errno| failed(self.port.name(), "queue a block", errno))
    }

    /// The fence of a block that was just queued.
    fn fence(&self, claim: Claim) -> Result<OwnedFd> {
        let block = attached(self.ring.as_ref(), self.port.name())?.block(claim.block()).fd()?;
        dmabuf::export_sync_file(block, self.wait_for)
            .map_err(|errno| failed(self.port.name(), "get a fence", errno))
    }

    /// Fails if a block was cancelled before its fence was taken, which then does not tell how it
    /// ended.
    fn check_running(&self, fence: &OwnedFd) -> Result<()> {
        if is_done(fence).map_err(|errno| self.ended(errno))? && !self.port.is_running() {
            return Err(self.ended(Errno::NODEV));
        }
        Ok(())
    }

    /// Whether every queued block is done.
    pub(super) fn is_idle(&self) -> Result<bool> {
        let last = self.queued.back().and_then(|queued| queued.done.as_ref());
        last.map_or(Ok(true), is_done).map_err(|errno| self.ended(errno))
    }

    /// The block that was queued first, if it is done.
    pub(super) fn take(&mut self) -> Result<Option<Filled>> {
        if self.known == 0 {
            self.look()?;
        }
        if self.known == 0 {
            self.take_apart()?;
            return Ok(None);
        }
        self.known -= 1;
        Ok(self.queued.pop_front().map(|queued| queued.filled))
    }

    /// Finds out which blocks are done. Fails if the first is not and never will be.
    fn look(&mut self) -> Result<()> {
        let fences = self.queued.iter().enumerate().filter_map(|(place, queued)| {
            let fence = queued.done.as_ref()?;
            Some((place + 1, fence))
        });
        let (counts, fences): (Vec<_>, Vec<_>) = fences.take(LOOK).unzip();
        let fds: Vec<_> = fences.iter().map(|fence| fence.as_fd()).collect();
        if fds.is_empty() {
            return Ok(());
        }
        let done = signalled(&fds).map_err(|errno| self.ended(errno))?;
        let mut known = 0;
        for ((fd, count), _) in fds.iter().zip(counts).zip(done).take_while(|(_, done)| *done) {
            match sync_file::status(*fd) {
                Ok(true) => known = count,
                Err(errno) if known == 0 => return Err(self.ended(errno)),
                // Earlier blocks are taken first.
                _ => break,
            }
        }
        self.known = known;
        if known > 0 {
            self.pace.found(known, known == self.queued.len(), Instant::now());
        }
        Ok(())
    }

    /// Gives each block of the first batch a fence of its own if they come too slowly for one wake-up.
    fn take_apart(&mut self) -> Result<()> {
        let several = self.queued.iter().take_while(|queued| queued.done.is_none()).count();
        if several == 0 || !self.pace.is_slow(several + 1, Instant::now()) {
            return Ok(());
        }
        for place in 0..several {
            let fence = self.fence(self.claim(self.queued[place].filled)?)?;
            // If it is done already, the fence does not tell how. A later one does.
            if !is_signalled(&fence).map_err(|errno| self.ended(errno))? {
                self.queued[place].done = Some(fence);
            }
        }
        Ok(())
    }

    /// The error if the device has cancelled a block. A device has two error numbers for that.
    fn ended(&self, errno: Errno) -> crate::Error {
        let errno = if errno == Errno::INTR { Errno::NODEV } else { errno };
        failed(self.port.name(), "finish a block", errno)
    }

    /// The fence to poll for the next blocks. They are a batch, unless that would leave the device
    /// less than half of the queued blocks.
    fn first(&self) -> Option<Wait<'_>> {
        let batch = self.pace.batch(1).min(self.queued.len() / 2).max(1);
        let mut fences = self.queued.iter().enumerate().filter(|(_, queued)| queued.done.is_some());
        let first = fences.next()?;
        let last = fences.take_while(|(place, _)| *place < batch).last().unwrap_or(first);
        Some(Wait::readable(last.1.done.as_ref()?.as_fd()))
    }

    pub(super) fn pending(&self) -> Pending<'_> {
        Pending { blocks: self.queued.len(), ready: self.first() }
    }

    /// Notes which blocks of a batch that has begun are done, before the device is stopped: then
    /// the batch's fence only tells that it was aborted.
    pub(super) fn look_closely(&mut self) -> Result<()> {
        self.look()?;
        let Some(ring) = &self.ring else { return Ok(()) };
        let batch: Vec<_> = self
            .queued
            .iter()
            .skip(self.known)
            .take_while(|queued| queued.done.is_none())
            .map(|queued| ring.block(queued.filled.block).fd())
            .collect::<Result<_, dmabuf_dio::Error>>()?;
        if batch.is_empty() || !self.port.is_running() {
            return Ok(());
        }
        let done = signalled(&batch).map_err(|errno| self.ended(errno))?;
        self.known += done.iter().take_while(|done| **done).count();
        Ok(())
    }

    /// Drops the blocks that the device has cancelled. Finished blocks can still be taken.
    pub(super) fn keep_done(&mut self) {
        let mut keep = self.known;
        for (place, queued) in self.queued.iter().enumerate().skip(self.known) {
            match &queued.done {
                None => {}
                Some(fence) if is_done(fence) == Ok(true) => keep = place + 1,
                Some(_) => break,
            }
        }
        self.known = keep;
        self.queued.truncate(keep);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    /// A device that signals or cancels the fence of a block before the stream can take it.
    struct AtOnce {
        running: bool,
    }

    impl Port for AtOnce {
        fn name(&self) -> &'static str {
            "a device"
        }

        fn attach(&self, _: BorrowedFd<'_>) -> dmabuf_dio_sys::Result<()> {
            Ok(())
        }

        fn enqueue(&self, _: BorrowedFd<'_>, _: u64) -> dmabuf_dio_sys::Result<()> {
            Ok(())
        }

        fn is_running(&self) -> bool {
            self.running
        }
    }

    #[test]
    fn cancelled_blocks_are_not_counted_as_filled() {
        let Ok(ring) = BlockRing::new(1, 4096) else {
            println!("skipped: no heap");
            return;
        };
        let (ring, filled) = (Arc::new(ring), Filled { block: 0, bytes: 4096 });
        for running in [true, false] {
            let mut blocks = Fenced::filling(AtOnce { running });
            blocks.attach(&ring).expect("attached");
            let looked = blocks.queue_and_look(&[filled], 8);
            let mut blocks = Fenced::emptying(AtOnce { running });
            blocks.attach(&ring).expect("attached");
            let queued = blocks.queue(filled);
            if running {
                assert_eq!(looked.expect("queued"), (1, true), "nothing was queued before");
                queued.expect("queued");
                assert_eq!(blocks.take().expect("no error"), Some(filled));
            } else {
                for error in [looked.map(|_| ()), queued] {
                    let error = error.expect_err("it is gone");
                    assert!(matches!(error, Error::Stream { .. }), "{error}");
                    assert_eq!(error.errno().map(dmabuf_dio::Errno::raw), Some(libc::ENODEV));
                }
            }
        }
    }

    #[test]
    fn batch_covers_one_millisecond() {
        let now = Instant::now();
        let pace = |each| Pace { each, looked: None, was_dry: false };
        let of = |micros| pace(Some(Duration::from_micros(micros))).batch(7);
        assert_eq!([2000, 1000, 999, 300, 100, 10, 0].map(of), [1, 1, 1, 3, 10, 32, 32]);
        let mut pace = pace(None);
        let unknown = [0, 1, 2, 4, 8, 32, 64];
        assert_eq!(unknown.map(|queued| pace.batch(queued)), [1, 1, 2, 4, 8, 32, 32]);
        pace.found(1, false, now);
        assert_eq!(pace.batch(2), 1, "one look tells nothing");
        pace.looked = ago(now, 8);
        pace.found(80, false, now);
        assert!((9..=10).contains(&pace.batch(2)), "{pace:?}");
    }

    fn ago(now: Instant, millis: u64) -> Option<Instant> {
        now.checked_sub(Duration::from_millis(millis))
    }

    #[test]
    fn idle_device_is_not_slow() {
        let now = Instant::now();
        let mut pace =
            Pace { each: Some(Duration::from_micros(1)), looked: ago(now, 8), was_dry: false };
        pace.found(1, true, now);
        assert_eq!(pace.batch(2), 32, "when it finished is not known");
        pace.looked = ago(now, 8);
        pace.found(1, false, now);
        assert_eq!(pace.batch(2), 32, "it had nothing to do at first");
        (pace.looked, pace.was_dry) = (ago(now, 100), true);
        pace.goes_on(now);
        assert!(!pace.is_slow(32, now), "it has just got some");
        pace.looked = ago(now, 8);
        pace.found(1, false, now);
        assert!(pace.batch(2) < 32, "now it was busy all the time");
    }

    #[test]
    fn long_batch_is_slow() {
        let now = Instant::now();
        let mut pace = Pace { each: None, looked: Some(now), was_dry: false };
        assert!(!pace.is_slow(32, now), "nothing is known");
        pace.each = Some(Duration::from_micros(100));
        assert!(!pace.is_slow(10, now) && pace.is_slow(11, now));
        pace.each = Some(Duration::from_micros(1));
        assert!(!pace.is_slow(32, now));
        pace.looked = ago(now, 20);
        assert!(pace.is_slow(2, now), "the device has become slower");
    }
}
