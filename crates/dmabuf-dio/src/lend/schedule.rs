// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeps requests in flight: the one scheduler of loads, saves, gathers and streams.
//!
//! A [`Planner`] knows which request comes next and what a result means for its bytes. [`run`] keeps
//! its requests in flight until it has no more. Code that cannot block, such as a stream, uses
//! [`InFlight`] alone. [`Verdict`] is the meaning of a result for both.

use super::ring::{Completion, Flight, Operation, Request, Ring};
use crate::errno::Errno;
use crate::error::{Error, Result};

/// The meaning of a read's or write's result for the bytes of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// All that is needed was moved.
    Whole,
    /// This many bytes were moved, and the rest has to be requested again. 0 if the kernel was
    /// interrupted.
    Rest(u64),
    /// No byte was moved: the file ends here, or has no more space.
    Nothing,
    /// The file system accepted `O_DIRECT` on open, and refuses it here.
    NotDirect,
    /// The kernel or the device failed the request.
    Failed(Errno),
}

impl Verdict {
    /// `result` is that of a request of which `needed` bytes are needed; `direct` says whether it was
    /// made with `O_DIRECT`.
    #[inline]
    pub fn of(result: Result<u64, Errno>, needed: u64, direct: bool) -> Self {
        match result {
            Ok(moved) if moved >= needed => Self::Whole,
            Ok(0) => Self::Nothing,
            Ok(moved) => Self::Rest(moved),
            Err(errno) => match errno.raw() {
                libc::EINTR | libc::EAGAIN => Self::Rest(0),
                libc::EINVAL if direct => Self::NotDirect,
                _ => Self::Failed(errno),
            },
        }
    }
}

/// The requests in flight on a ring, each with the data that its planner keeps for the completion.
#[derive(Debug)]
pub struct InFlight<R> {
    /// Indexed by the user data of the request.
    kept: Vec<R>,
    free: Vec<u32>,
}

impl<R: Copy + Default> InFlight<R> {
    /// With room for `depth` requests, at least one.
    pub fn new(depth: usize) -> Self {
        let depth = depth.max(1);
        Self { kept: vec![R::default(); depth], free: (0..depth as u32).rev().collect() }
    }

    /// Number of requests that are not over.
    #[inline]
    pub fn len(&self) -> usize {
        self.kept.len() - self.free.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A place for the planner's data about the next request; `None` if there is no room.
    #[inline]
    fn next(&mut self) -> Option<&mut R> {
        let place = *self.free.last()?;
        Some(&mut self.kept[place as usize])
    }

    /// Queues the next request on the ring, without blocking.
    #[inline]
    fn push_next(
        &mut self,
        ring: &mut Ring,
        (operation, file): (Operation, u32),
        linked: bool,
    ) -> Result<(), Errno> {
        let Some(&place) = self.free.last() else { return Err(Errno::BUSY) };
        ring.push(&Request { operation, file, user_data: place.into(), linked })?;
        self.free.pop();
        Ok(())
    }

    /// Queues a request on the ring, without blocking, and keeps `kept` for its completion.
    ///
    /// # Errors
    ///
    /// `EBUSY` if there is no room, and as for [`Ring::push`]. Nothing is queued.
    pub fn push(
        &mut self,
        ring: &mut Ring,
        asked: (Operation, u32),
        linked: bool,
        kept: R,
    ) -> Result<(), Errno> {
        *self.next().ok_or(Errno::BUSY)? = kept;
        self.push_next(ring, asked, linked)
    }

    /// Returns the planner's data about a completed request; `None` for the first completion of a
    /// send. Every completion of the ring has to belong to a request that was queued here.
    #[inline]
    pub fn take(&mut self, completion: &Completion) -> Option<&R> {
        if !completion.is_last() {
            return None;
        }
        let place = completion.user_data() as u32;
        let kept = self.kept.get(place as usize)?;
        self.free.push(place);
        Some(kept)
    }
}

/// A source of requests for [`run`].
pub(crate) trait Planner {
    /// A request, as kept until its completion.
    type Request: Copy + Default;

    /// Writes the next request to `request`. Returns `false` if there is none at the moment: it is
    /// asked again after a completion.
    fn next(&mut self, ring: &mut Ring, request: &mut Self::Request) -> Result<bool>;

    /// The operation of a request, and the index of its file.
    fn ask(&self, request: &Self::Request) -> (Operation, u32);

    /// Does work that can overlap with the requests in flight.
    fn meanwhile(&mut self, _: &Ring) -> Result<()> {
        Ok(())
    }

    /// Records the result of a request, which is no longer in flight.
    fn complete(&mut self, request: &Self::Request, result: Result<u64, Errno>);

    /// Reports the progress since the last call. More requests are asked for afterwards.
    fn report(&mut self) {}
}

/// Why [`run`] ended although its planner may have had more requests.
#[derive(Debug)]
pub(crate) enum Halt {
    /// The kernel, or the ring, takes no more requests.
    Refused(Errno),
    /// The planner failed.
    Planner(Error),
    /// The kernel refuses to wait for the requests in flight: see [`Ring::stuck`].
    Stuck(Errno),
}

/// Keeps up to `depth` requests of a planner in flight, and waits for `batch` of them at a time,
/// until none is left. Nothing is in flight on return, however it ends, except after
/// [`Halt::Stuck`].
pub(crate) fn run<P: Planner>(
    ring: &mut Ring,
    planner: &mut P,
    depth: usize,
    batch: usize,
) -> Result<(), Halt> {
    // Completions of other requests would be taken for the planner's.
    if ring.in_flight() > 0 {
        return Err(Halt::Refused(Errno::BUSY));
    }
    let mut requests = InFlight::new(depth);
    // It waits on drop: the planner may panic, as a progress callback may, and the kernel owns the
    // memory all the same.
    let mut flight = ring.flight();
    let end = go(&mut flight, planner, &mut requests, batch);
    let drained = flight.drain(|completion| complete(planner, &mut requests, &completion));
    drained.map_err(Halt::Stuck)?;
    end
}

fn go<P: Planner>(
    ring: &mut Flight<'_>,
    planner: &mut P,
    requests: &mut InFlight<P::Request>,
    batch: usize,
) -> Result<(), Halt> {
    loop {
        while let Some(next) = requests.next() {
            if !planner.next(ring, next).map_err(Halt::Planner)? {
                break;
            }
            let asked = planner.ask(next);
            requests.push_next(ring, asked, false).map_err(Halt::Refused)?;
        }
        if requests.is_empty() {
            return Ok(());
        }
        planner.meanwhile(ring).map_err(Halt::Planner)?;
        ring.wait(batch.min(requests.len())).map_err(Halt::Refused)?;
        ring.reap(|completion| complete(planner, requests, &completion));
        planner.report();
    }
}

#[inline]
fn complete<P: Planner>(
    planner: &mut P,
    requests: &mut InFlight<P::Request>,
    completion: &Completion,
) {
    if let Some(request) = requests.take(completion) {
        planner.complete(request, completion.result());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_of_a_send_is_free_after_its_last_completion() {
        // IORING_CQE_F_MORE and IORING_CQE_F_NOTIF (linux/io_uring.h).
        const MORE: u32 = 1 << 1;
        const NOTIF: u32 = 1 << 3;
        let mut requests = InFlight { kept: vec!['a'], free: vec![] };
        assert_eq!(requests.take(&Completion::of(0, 4096, MORE)), None);
        assert_eq!((requests.len(), requests.next()), (1, None));
        assert_eq!(requests.take(&Completion::of(0, 0, NOTIF)), Some(&'a'));
        assert!(requests.is_empty() && requests.next().is_some());
    }

    #[test]
    fn results_become_verdicts() {
        let failed = |number| Err(Errno::from_raw(number));
        for (result, direct, verdict) in [
            (Ok(100), true, Verdict::Whole),
            (Ok(4096), true, Verdict::Whole),
            (Ok(99), true, Verdict::Rest(99)),
            (Ok(0), false, Verdict::Nothing),
            (failed(libc::EINTR), true, Verdict::Rest(0)),
            (failed(libc::EAGAIN), false, Verdict::Rest(0)),
            (failed(libc::EINVAL), true, Verdict::NotDirect),
            (failed(libc::EINVAL), false, Verdict::Failed(Errno::from_raw(libc::EINVAL))),
            (failed(libc::EIO), true, Verdict::Failed(Errno::from_raw(libc::EIO))),
        ] {
            assert_eq!(Verdict::of(result, 100, direct), verdict, "{result:?}");
        }
        assert_eq!(Verdict::of(Ok(0), 0, true), Verdict::Whole, "nothing was needed");
    }
}
