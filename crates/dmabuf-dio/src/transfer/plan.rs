// SPDX-License-Identifier: MIT OR Apache-2.0
//! The requests of a job, in order, and its moved bytes.

use std::collections::VecDeque;

use super::{Job, Stop};
use crate::errno::Errno;
use crate::file::extent::Extent;
use crate::lend::Verdict;

/// Splits the extent of a job into requests, and requests the rest of short ones again.
pub(crate) struct Plan<'j> {
    job: &'j Job<'j>,
    /// Offset of the next new request in the extent.
    next: u64,
    /// The offsets in the file, ascending, at which incomplete requests continue.
    open: VecDeque<u64>,
    again: VecDeque<Extent>,
    /// The failure closest to the start of the file.
    failed: Option<(u64, Failure)>,
}

#[derive(Clone, Copy, Debug)]
enum Failure {
    Errno(Errno),
    EndOfFile,
}

impl<'j> Plan<'j> {
    pub(crate) fn new(job: &'j Job<'j>) -> Self {
        let (open, again) = (VecDeque::new(), VecDeque::new());
        Self { job, next: 0, open, again, failed: None }
    }

    /// The next request, which [`start`](Self::start) takes: the rest of an earlier one, or as much
    /// as fits before `limit(start)` in the buffer. `None` if nothing is left, or a request has
    /// failed.
    pub(crate) fn next(&self, limit: impl Fn(u64) -> u64) -> Option<Extent> {
        let extent = self.job.extent;
        if self.failed.is_some() {
            return None;
        }
        if let Some(again) = self.again.front() {
            return Some(*again);
        }
        if self.next > 0 && self.next >= self.needed() {
            return None;
        }
        let (buf, left) = (extent.buf + self.next, extent.len - self.next);
        let len = self.job.chunk.min(left).min(limit(buf) - buf);
        Some(Extent { file: extent.file + self.next, buf, len })
    }

    /// Bytes that are needed of the extent.
    fn needed(&self) -> u64 {
        let Extent { file, len, .. } = self.job.extent;
        self.job.needed_end.saturating_sub(file).min(len)
    }

    /// Whether the next request repeats one, so that its memory is prepared.
    pub(crate) fn repeats(&self) -> bool {
        !self.again.is_empty()
    }

    /// Whether no request is open.
    pub(crate) fn is_idle(&self) -> bool {
        self.open.is_empty()
    }

    /// Takes the request that [`next`](Self::next) returned.
    pub(crate) fn start(&mut self, request: Extent) {
        if self.again.pop_front().is_none() {
            self.open.push_back(request.file);
            self.next += request.len;
        }
    }

    /// Records the result of a request.
    pub(crate) fn complete(&mut self, request: Extent, result: Result<u64, Errno>) {
        let Extent { file, buf, len } = request;
        let needed = self.job.needed_end.saturating_sub(file).min(len);
        // Other refusals come from the file system: the job is repeated without `O_DIRECT`.
        match Verdict::of(result, needed, self.job.ends_within_block(file)) {
            Verdict::Whole => {
                if let Ok(place) = self.open.binary_search(&file) {
                    self.open.remove(place);
                }
                self.job.watch.add(needed);
            }
            Verdict::Rest(moved) => {
                if let Ok(place) = self.open.binary_search(&file) {
                    self.open[place] = file + moved;
                }
                let rest = Extent { file: file + moved, buf: buf + moved, len: len - moved };
                self.again.push_back(rest);
                self.job.watch.add(moved);
            }
            Verdict::Nothing | Verdict::NotDirect => self.stop(file, Failure::EndOfFile),
            Verdict::Failed(errno) => self.fail(file, errno),
        }
    }

    /// Records that a request failed at this offset in the file.
    pub(crate) fn fail(&mut self, offset: u64, errno: Errno) {
        self.stop(offset, Failure::Errno(errno));
    }

    fn stop(&mut self, offset: u64, failure: Failure) {
        if self.failed.is_none_or(|(first, _)| offset < first) {
            self.failed = Some((offset, failure));
        }
    }

    /// Bytes moved contiguously from the start of the extent. They end before a failure if an
    /// earlier request has to be repeated.
    pub(crate) fn done(&self) -> u64 {
        self.open.front().map_or(self.next, |file| file - self.job.extent.file)
    }

    /// The result, once nothing is in flight.
    pub(crate) fn finish(&self) -> Result<(), Stop> {
        let done = self.done();
        match self.failed {
            None if done >= self.needed() => Ok(()),
            None => Err(Stop::Refused { errno: Errno::IO, done }),
            Some((offset, Failure::Errno(errno))) => Err(Stop::Failed { offset, errno, done }),
            Some((end, Failure::EndOfFile)) => Err(Stop::Short { end }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;
    use crate::control::{Control, Watch};
    use crate::direction::Direction;

    const EIO: i32 = -libc::EIO;

    /// Converts the kernel's result.
    fn given(result: i32) -> Result<u64, Errno> {
        u64::try_from(result).map_err(|_| Errno::from_raw(-result))
    }

    /// Makes five requests of 4096 bytes and completes them with `results`: for each chunk, the
    /// results in the order of arrival. Chunks without one are whole.
    fn after(needed_end: u64, results: &[(u64, i32)]) -> (Option<(u64, bool)>, u64, Vec<Extent>) {
        let control = Control::default();
        let watch = Watch::start(&control, needed_end);
        let file = std::io::stdin();
        let extent = Extent { file: 0, buf: 0, len: 5 * 4096 };
        let job =
            Job { needed_end, chunk: 4096, depth: 5, ..Job::of(file.as_fd(), extent, &watch) };
        let mut plan = started(&job);
        let others = (0..5).filter(|chunk| results.iter().all(|(with, _)| with != chunk));
        for (chunk, result) in results.iter().copied().chain(others.map(|chunk| (chunk, 4096))) {
            let at = chunk * 4096;
            plan.complete(Extent { file: at, buf: at, len: 4096 }, given(result));
        }
        let failed =
            plan.failed.map(|(offset, failure)| (offset, matches!(failure, Failure::EndOfFile)));
        (failed, plan.done(), plan.again.into())
    }

    /// A plan whose requests are all made.
    fn started<'j>(job: &'j Job<'j>) -> Plan<'j> {
        let mut plan = Plan::new(job);
        while let Some(request) = plan.next(|_| u64::MAX) {
            plan.start(request);
        }
        plan
    }

    #[test]
    fn full_completions_finish_the_transfer() {
        let all = [(0, 4096), (2, 4096), (1, 4096), (4, 4096), (3, 4096)];
        assert_eq!(after(20_480, &all), (None, 20_480, vec![]));
    }

    #[test]
    fn failure_at_the_lowest_offset_is_reported() {
        let results = [(0, 4096), (3, EIO), (2, 4096), (1, EIO), (4, 4096)];
        assert_eq!(after(20_480, &results), (Some((4096, false)), 4096, vec![]));
    }

    #[test]
    fn done_counts_from_the_start_of_the_range() {
        let control = Control::default();
        let watch = Watch::start(&control, 1 << 21);
        let file = std::io::stdin();
        let extent = Extent { file: 1 << 20, buf: 0, len: 5 * 4096 };
        let job = Job { chunk: 4096, depth: 5, ..Job::of(file.as_fd(), extent, &watch) };
        let mut plan = started(&job);
        for (chunk, moved) in [(0, 4096), (1, 4096), (3, 4096), (4, 4096), (2, 0)] {
            let (file, buf) = (extent.file + chunk * 4096, chunk * 4096);
            plan.complete(Extent { file, buf, len: 4096 }, Ok(moved));
        }
        assert_eq!(plan.done(), 2 * 4096);
        assert!(matches!(plan.finish(), Err(Stop::Short { end }) if end == (1 << 20) + 8192));
    }

    #[test]
    fn request_to_be_repeated_is_not_counted() {
        let request = Extent { file: 0, buf: 0, len: 4096 };
        let results = [(0, -libc::EAGAIN), (1, EIO)];
        assert_eq!(after(20_480, &results), (Some((4096, false)), 0, vec![request]));
    }

    #[test]
    fn short_read_is_continued_where_it_stopped() {
        let rest = Extent { file: 4096 + 1024, buf: 4096 + 1024, len: 3072 };
        assert_eq!(after(20_480, &[(1, 1024)]), (None, 5120, vec![rest]));
    }

    #[test]
    fn read_ending_within_a_block_is_continued() {
        let rest = Extent { file: 4096 + 1000, buf: 4096 + 1000, len: 3096 };
        assert_eq!(after(20_480, &[(1, 1000)]), (None, 5096, vec![rest]));
    }

    #[test]
    fn empty_read_is_the_end_of_the_file() {
        assert_eq!(after(20_480, &[(1, 0)]), (Some((4096, true)), 4096, vec![]));
    }

    #[test]
    fn einval_within_a_block_is_the_end_of_file() {
        let control = Control::default();
        let watch = Watch::start(&control, 8192);
        let file = std::io::stdin();
        let mut job = Job::of(file.as_fd(), Extent { file: 0, buf: 0, len: 8192 }, &watch);
        let einval = |job: &Job<'_>, at: u64| {
            let mut plan = Plan::new(job);
            plan.complete(Extent { file: at, buf: at, len: 8192 - at }, given(-libc::EINVAL));
            let (offset, failure) = plan.failed.expect("it failed");
            (offset, matches!(failure, Failure::EndOfFile))
        };
        assert_eq!(einval(&job, 1000), (1000, true));
        assert_eq!(einval(&job, 1024), (1024, false));
        job.direction = Direction::Save;
        assert_eq!(einval(&job, 1000), (1000, false));
    }

    #[test]
    fn bytes_beyond_the_range_may_be_missing() {
        assert_eq!(after(16_484, &[(4, 100)]), (None, 20_480, vec![]));
        let rest = Extent { file: 16_483, buf: 16_483, len: 3997 };
        assert_eq!(after(16_484, &[(4, 99)]), (None, 16_483, vec![rest]));
    }

    #[test]
    fn interrupted_requests_are_repeated() {
        let request = Extent { file: 8192, buf: 8192, len: 4096 };
        assert_eq!(after(20_480, &[(2, -libc::EINTR)]), (None, 8192, vec![request]));
        assert_eq!(after(20_480, &[(2, -libc::EAGAIN)]), (None, 8192, vec![request]));
    }

    #[test]
    fn finish_before_all_requests_is_refused() {
        let control = Control::default();
        let watch = Watch::start(&control, 8192);
        let file = std::io::stdin();
        let extent = Extent { file: 0, buf: 0, len: 8192 };
        let job = Job { chunk: 4096, ..Job::of(file.as_fd(), extent, &watch) };
        let mut plan = Plan::new(&job);
        let first = plan.next(|_| u64::MAX).expect("the first");
        plan.start(first);
        assert!(!plan.is_idle() && plan.done() == 0);
        plan.complete(first, Ok(4096));
        assert!(plan.is_idle());
        assert!(matches!(plan.finish(), Err(Stop::Refused { done: 4096, .. })));
    }
}
