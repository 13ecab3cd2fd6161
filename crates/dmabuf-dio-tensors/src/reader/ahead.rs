// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which tensors are read before they are requested, and which are kept until they are.

use std::collections::{BTreeMap, BTreeSet};

use super::report::ReaderReport;
use super::window::Window;
use crate::plan;
use crate::tensor::Tensor;

/// Requests may be this many tensors apart and still follow the order of the files: threads
/// overtake each other.
const NEAR: usize = 8;
/// Requests in a row that are no accident.
const STREAK: u32 = 2;
/// `Costs::worth` of files.
pub(super) const WORTH_A_LOAD: u64 = 4 << 20;

/// Bytes of a read that is waited for: the rest is read ahead.
const NOW: u64 = 8 << 20;

/// Bytes of a disk's blocks, and of most file systems'.
const BLOCK: u64 = 4096;

/// Tensors that are read together, by their places in the model.
pub(super) type Run = plan::Run<Vec<usize>>;

/// What decides which tensors are read together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Costs {
    /// The most bytes between two tensors of a read.
    pub(super) gap: u64,
    /// Of the bytes of a read, one part in so many may lie between its tensors. `None`: any.
    pub(super) thrift: Option<u64>,
    /// After so many bytes in order it pays to read ahead, without being told what will be requested.
    pub(super) worth: u64,
}

/// Tensors that were read or are being read, and what was requested so far. `B`: the memory of a
/// tensor.
#[derive(Debug)]
pub(super) struct Ahead<B> {
    places: BTreeMap<usize, Place<B>>,
    costs: Costs,
    /// Bytes of the tensors in `places`.
    held: u64,
    /// How often each tensor was announced, until it is requested.
    wanted: BTreeMap<usize, u32>,
    /// Those of them that are not in `places`.
    missing: BTreeSet<usize>,
    /// Those that are not read ahead. Also those whose read failed: a disk may take seconds to say so, and says
    /// so to who requests them.
    avoided: BTreeSet<usize>,
    /// The tensor after the last one that was requested in order.
    next: usize,
    /// The tensors from `next` to this one are in `places`, or need not be read.
    planned: usize,
    /// Bytes that were requested in order, and how often one followed the one before.
    row: u64,
    streak: u32,
    pub(super) window: Window,
    pub(super) report: ReaderReport,
}

#[derive(Debug)]
enum Place<B> {
    Reading,
    /// With the number of the read, which says what is oldest.
    Read(B, u64),
}

/// Where a tensor is that is requested.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found<B> {
    Read(B),
    /// A read that is under way brings it.
    Reading,
    Absent,
}

impl<B> Ahead<B> {
    pub(super) fn new(window: Window, costs: Costs) -> Self {
        Self {
            places: BTreeMap::new(),
            costs,
            held: 0,
            wanted: BTreeMap::new(),
            missing: BTreeSet::new(),
            avoided: BTreeSet::new(),
            next: 0,
            planned: 0,
            row: 0,
            streak: 0,
            window,
            report: ReaderReport::default(),
        }
    }

    /// A tensor that is not empty will be requested: it may be read ahead at once.
    pub(super) fn want(&mut self, number: usize) {
        *self.wanted.entry(number).or_default() += 1;
        if !self.has(number) && !self.avoided.contains(&number) {
            self.missing.insert(number);
        }
    }

    /// One who announced a tensor will not request it any more.
    pub(super) fn forget(&mut self, number: usize) {
        if let Some(count) = self.wanted.get_mut(&number) {
            *count -= 1;
            if *count == 0 {
                self.wanted.remove(&number);
                self.missing.remove(&number);
            }
        }
    }

    /// A tensor is not to be read ahead.
    pub(super) fn avoid(&mut self, number: usize) {
        self.avoided.insert(number);
        self.missing.remove(&number);
    }

    /// Notes that a tensor is requested.
    pub(super) fn request(&mut self, tensors: &[Tensor], number: usize) {
        let len = tensors[number].len();
        if self.follows(number).is_some() {
            self.row = self.row.saturating_add(len);
            self.streak = self.streak.saturating_add(1);
            self.next = self.next.max(number + 1);
        } else {
            (self.row, self.streak, self.next) = (len, 0, number + 1);
            self.planned = self.next;
        }
        self.planned = self.planned.max(self.next);
        self.missing.remove(&number);
        if self.wanted.remove(&number).is_some() {
            // Tensors that nobody announced are not read because others were.
            (self.row, self.streak) = (0, 0);
        }
        self.report.requested += len;
    }

    /// Whether a tensor follows those requested: their bytes.
    pub(super) fn follows(&self, number: usize) -> Option<u64> {
        (number.abs_diff(self.next) <= NEAR).then_some(self.row)
    }

    /// Whether a tensor was read, or is being read.
    pub(super) fn has(&self, number: usize) -> bool {
        self.places.contains_key(&number)
    }

    pub(super) fn take(&mut self, tensors: &[Tensor], number: usize) -> Found<B> {
        if let Some(Place::Reading) = self.places.get(&number) {
            return Found::Reading;
        }
        self.remove(tensors, number).map_or(Found::Absent, Found::Read)
    }

    fn remove(&mut self, tensors: &[Tensor], number: usize) -> Option<B> {
        let place = self.places.remove(&number)?;
        self.held -= tensors[number].len();
        if self.wanted.contains_key(&number) {
            self.missing.insert(number);
        }
        match place {
            Place::Read(buffer, _) => Some(buffer),
            Place::Reading => None,
        }
    }

    /// A read of a tensor that is requested and is not there, and unless `alone` of those that
    /// follow it.
    pub(super) fn now(&mut self, tensors: &[Tensor], number: usize, alone: bool) -> Run {
        // Those after one that was overtaken may have been requested, too.
        let is_late = self.wanted.is_empty() && number + 1 < self.next;
        let limit = if alone || is_late { 0 } else { self.limit() };
        self.drop_stale(tensors, limit.saturating_sub(NOW));
        let room = limit.saturating_sub(self.held).min(NOW);
        let run = self.run(tensors, number, room);
        self.begin(tensors, &run);
        run
    }

    /// The next read ahead, if there is room for one.
    pub(super) fn more(&mut self, tensors: &[Tensor]) -> Option<Run> {
        let limit = self.limit();
        if limit == 0 {
            return None;
        }
        let first = if self.wanted.is_empty() {
            (self.planned..tensors.len()).find(|&number| self.is_missing(tensors, number))
        } else {
            // Few of many may be.
            self.missing.range(self.planned..).next().copied()
        };
        let Some(first) = first else {
            self.planned = tensors.len();
            return None;
        };
        self.planned = first;
        let step = self.window.step();
        // Not for every few bytes that become free.
        let least = tensors[first].len().max(step.min(limit / 2));
        if self.held > 0 && self.held + least > limit {
            self.drop_stale(tensors, limit.saturating_sub(least));
        }
        if self.held > 0 && self.held + least > limit {
            return None;
        }
        // A tensor beyond the bound is read ahead alone.
        let room = limit.saturating_sub(self.held).min(step);
        let run = self.run(tensors, first, room);
        self.begin(tensors, &run);
        Some(run)
    }

    /// The bytes that may be in memory before they are requested.
    fn limit(&self) -> u64 {
        let window = self.window.bytes();
        let in_vain = self.report.dropped > self.report.requested / 2;
        let in_order = self.row >= self.costs.worth && self.streak >= STREAK;
        match (in_vain, self.wanted.is_empty()) {
            (false, false) => window,
            (false, true) if in_order => self.row.min(window),
            _ => 0,
        }
    }

    /// Whether a tensor has to be read for one who may request it.
    fn is_missing(&self, tensors: &[Tensor], number: usize) -> bool {
        let is_wanted = self.wanted.is_empty() || self.wanted.contains_key(&number);
        is_wanted
            && !tensors[number].is_empty()
            && !self.has(number)
            && !self.avoided.contains(&number)
    }

    /// The tensor `first` and those after it, up to `room` bytes.
    fn run(&self, tensors: &[Tensor], first: usize, room: u64) -> Run {
        let start = &tensors[first];
        let mut run = Run { tensors: vec![first], file: start.file, range: start.range.clone() };
        for (number, tensor) in tensors.iter().enumerate().skip(first + 1) {
            let gap = tensor.range.start.saturating_sub(run.range.end);
            let len = tensor.range.end.saturating_sub(run.range.start);
            // Parts need not be in the order of the file; one in pieces is read by itself.
            let follows = tensor.is_empty() || tensor.range.start >= run.range.end;
            let joins = follows && start.is_contiguous() && tensor.is_contiguous();
            // What is in the last block of the disk is read anyway.
            let is_read = tensor.range.start / BLOCK < run.range.end.div_ceil(BLOCK);
            let near = is_read || gap <= self.gap(&run);
            if tensor.file != run.file || !joins || !near || len > room {
                break;
            }
            if self.is_missing(tensors, number) {
                run.tensors.push(number);
                run.range.end = tensor.range.end;
            } else if self.has(number) {
                break;
            }
        }
        run
    }

    /// The bytes that a read may read in vain to go on with another tensor.
    fn gap(&self, run: &Run) -> u64 {
        let Costs { gap, thrift, .. } = self.costs;
        thrift.map_or(gap, |thrift| run.len() / thrift).min(gap)
    }

    fn begin(&mut self, tensors: &[Tensor], run: &Run) {
        for &number in &run.tensors {
            self.places.insert(number, Place::Reading);
            self.missing.remove(&number);
            self.held += tensors[number].len();
        }
        self.report.reads += 1;
    }

    /// A read of `bytes` has ended, with the memory of its tensors.
    pub(super) fn arrived(&mut self, run: &Run, buffers: impl IntoIterator<Item = B>, bytes: u64) {
        self.report.read += bytes;
        let age = self.report.reads;
        for (&number, buffer) in run.tensors.iter().zip(buffers) {
            self.places.insert(number, Place::Read(buffer, age));
        }
    }

    /// A read has failed, or unless `broken` was not begun or was cancelled.
    pub(super) fn failed(&mut self, tensors: &[Tensor], run: &Run, broken: bool) {
        for &number in &run.tensors {
            drop(self.remove(tensors, number));
            if broken {
                self.avoid(number);
            } else {
                self.planned = self.planned.min(number).max(self.next);
            }
        }
    }

    /// Drops tensors that were read and are not about to be requested, the oldest first, until
    /// those in memory have at most `target` bytes.
    fn drop_stale(&mut self, tensors: &[Tensor], target: u64) {
        if self.held <= target {
            return;
        }
        let soon = self.next.saturating_sub(NEAR)..self.planned;
        let before = self.places.range(..soon.start);
        let stale =
            before.chain(self.places.range(soon.end..)).filter_map(
                |(&number, place)| match place {
                    Place::Read(_, age) => Some((*age, number)),
                    Place::Reading => None,
                },
            );
        let mut stale: Vec<_> = stale.collect();
        stale.sort_unstable();
        for (_, number) in stale {
            if self.held <= target {
                break;
            }
            drop(self.remove(tensors, number));
            self.report.dropped += tensors[number].len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::byte_order::ByteOrder;
    use crate::dtype::Dtype;
    use crate::settings::GAP;

    const MIB: u64 = 1 << 20;

    fn model(lens: &[u64]) -> Vec<Tensor> {
        let mut at = 0;
        let tensor = |len: &u64| {
            let range = at..at + len;
            at += len;
            let (dtype, byte_order) = (Dtype::U8, ByteOrder::Little);
            Tensor { name: String::new(), dtype, shape: vec![*len], file: 0, range, byte_order }
        };
        lens.iter().map(tensor).collect()
    }

    fn costs(thrift: Option<u64>) -> Costs {
        Costs { gap: GAP, thrift, worth: WORTH_A_LOAD }
    }

    fn ahead(window: u64) -> Ahead<()> {
        Ahead::new(Window::new(Some(window), false), costs(None))
    }

    /// Requests a tensor as a reader does, with reads that end at once. Returns what was read.
    fn get(ahead: &mut Ahead<()>, tensors: &[Tensor], number: usize) -> Vec<Vec<usize>> {
        let mut read = Vec::new();
        ahead.request(tensors, number);
        if ahead.take(tensors, number) == Found::Absent {
            let run = ahead.now(tensors, number, false);
            ahead.arrived(&run, run.tensors.iter().map(drop), run.len());
            assert_eq!(ahead.take(tensors, number), Found::Read(()));
            read.push(run.tensors);
        }
        while let Some(run) = ahead.more(tensors) {
            ahead.arrived(&run, run.tensors.iter().map(drop), run.len());
            read.push(run.tensors);
        }
        read
    }

    #[test]
    fn requests_in_order_are_read_ahead_as_many_bytes_as_were_used() {
        let tensors = model(&[MIB; 64]);
        let mut ahead = ahead(16 * MIB);
        let mut read = 0;
        for number in 0..64 {
            read += get(&mut ahead, &tensors, number).concat().len();
            assert!(read <= 2 * (number + 1), "{read} read for {}", number + 1);
            assert!(ahead.held <= 16 * MIB);
        }
        assert_eq!((read, ahead.held, ahead.report.dropped), (64, 0, 0));
        assert!(ahead.report.reads < 30, "{} reads", ahead.report.reads);
    }

    #[test]
    fn parts_in_one_block_of_the_disk_are_read_together() {
        let mut tensors = model(&vec![8; 8000]);
        for tensor in &mut tensors {
            tensor.range.end -= 4;
            tensor.shape = vec![4];
        }
        let mut ahead = Ahead::<()>::new(Window::new(Some(MIB), false), costs(Some(64)));
        (0..8000).for_each(|number| ahead.want(number));
        let read: usize = (0..8000).map(|number| get(&mut ahead, &tensors, number).len()).sum();
        assert!(read < 20, "{read} reads");
        // Not those of other blocks
        let mut tensors = model(&[8192; 100]);
        for tensor in &mut tensors {
            tensor.range.end -= 4096;
            tensor.shape = vec![4096];
        }
        let mut ahead = Ahead::<()>::new(Window::new(Some(MIB), false), costs(Some(64)));
        (0..100).for_each(|number| ahead.want(number));
        let read: usize = (0..100).map(|number| get(&mut ahead, &tensors, number).len()).sum();
        assert_eq!(read, 100);
    }

    #[test]
    fn requests_out_of_order_are_read_alone() {
        let tensors = model(&[8 * MIB; 100]);
        let mut ahead = ahead(64 * MIB);
        for number in [90, 20, 70, 40, 0] {
            // The first bytes of a row are worth a read ahead, which later ones must not be.
            let read = get(&mut ahead, &tensors, number);
            assert_eq!(read[0][0], number);
        }
        assert!(ahead.report.read <= 2 * ahead.report.requested, "{:?}", ahead.report);
    }

    #[test]
    fn skipping_program_reads_at_most_a_few_times_what_it_uses() {
        let tensors = model(&[MIB; 1600]);
        let mut ahead = ahead(64 * MIB);
        for number in (0..1600).step_by(NEAR) {
            get(&mut ahead, &tensors, number);
        }
        let ReaderReport { requested, read, .. } = ahead.report;
        assert!(read <= 2 * requested + 64 * MIB, "{:?}", ahead.report);
    }

    #[test]
    fn announced_tensors_alone_are_read_at_once_within_the_window() {
        let tensors = model(&[MIB; 40]);
        let mut ahead = ahead(16 * MIB);
        for number in (0..40).filter(|number| number % 2 == 0) {
            ahead.want(number);
        }
        let read = get(&mut ahead, &tensors, 0).concat();
        assert!(read.iter().all(|number| number % 2 == 0), "{read:?}");
        assert!(read.len() > 8 && ahead.held <= 16 * MIB, "{read:?}");
        for number in (2..40).step_by(2) {
            get(&mut ahead, &tensors, number);
        }
        assert_eq!((ahead.held, ahead.report.dropped), (0, 0));
        assert_eq!(ahead.report.requested, 20 * MIB);
        // Nothing else is announced, so nothing is read.
        assert_eq!(ahead.more(&tensors), None);
        ahead.want(1);
        ahead.want(1);
        ahead.forget(1);
        ahead.forget(1);
        ahead.forget(1);
        assert_eq!(ahead.more(&tensors), None);
    }

    #[test]
    fn overtaking_threads_follow_the_order() {
        let tensors = model(&[MIB; 64]);
        let mut ahead = ahead(16 * MIB);
        for four in (0..64).step_by(4) {
            for number in [four + 2, four, four + 3, four + 1] {
                get(&mut ahead, &tensors, number);
            }
        }
        assert_eq!((ahead.held, ahead.report.dropped), (0, 0));
        assert_eq!(ahead.report.read, 64 * MIB);
    }

    #[test]
    fn tensor_beyond_the_window_is_read_alone() {
        let tensors = model(&[MIB, 100 * MIB, MIB, MIB]);
        let mut ahead = ahead(8 * MIB);
        (0..4).for_each(|number| ahead.want(number));
        let read: Vec<_> = (0..4).flat_map(|number| get(&mut ahead, &tensors, number)).collect();
        assert!(read.contains(&vec![1]), "{read:?}");
        assert_eq!((ahead.held, ahead.report.read), (0, 103 * MIB));
    }

    #[test]
    fn stale_tensors_make_room() {
        let tensors = model(&[MIB; 400]);
        let mut ahead = ahead(16 * MIB);
        (0..400).for_each(|number| ahead.want(number));
        for start in [0, 100, 200, 300] {
            for number in start..start + 40 {
                get(&mut ahead, &tensors, number);
                assert!(ahead.held <= 16 * MIB);
            }
        }
        let ReaderReport { requested, read, .. } = ahead.report;
        assert!(read <= requested + 4 * 16 * MIB && read > requested, "{:?}", ahead.report);
    }

    #[test]
    fn failed_read_leaves_nothing_and_is_not_repeated_ahead() {
        let tensors = model(&[MIB; 20]);
        let mut ahead = ahead(16 * MIB);
        (0..20).for_each(|number| ahead.want(number));
        ahead.request(&tensors, 0);
        for broken in [false, true] {
            let run = ahead.now(&tensors, 0, false);
            assert_eq!(ahead.take(&tensors, 0), Found::Reading);
            ahead.failed(&tensors, &run, broken);
            assert_eq!(ahead.take(&tensors, 0), Found::Absent);
            assert_eq!((ahead.held, ahead.report.read), (0, 0));
            assert_eq!(run.tensors, [0, 1, 2, 3, 4, 5, 6, 7]);
        }
        assert_eq!(ahead.more(&tensors).map(|run| run.tensors[0]), Some(8));
        ahead.request(&tensors, 1);
        assert_eq!(ahead.now(&tensors, 1, false).tensors, [1]);
    }

    #[test]
    fn avoided_tensors_are_read_when_they_are_requested() {
        let tensors = model(&[&[MIB; 8][..], &[100 * MIB], &[MIB; 8]].concat());
        for announced in [true, false] {
            let mut ahead = ahead(16 * MIB);
            ahead.avoid(8);
            (0..17).filter(|_| announced).for_each(|number| ahead.want(number));
            for number in 0..8 {
                let read = get(&mut ahead, &tensors, number).concat();
                assert!(!read.contains(&8), "{read:?}");
            }
            assert_eq!(get(&mut ahead, &tensors, 8)[0], [8]);
            (9..17).for_each(|number| drop(get(&mut ahead, &tensors, number)));
            assert_eq!((ahead.held, ahead.report.read), (0, 116 * MIB));
        }
    }

    #[test]
    fn announced_requests_far_apart_do_not_read_in_vain() {
        let tensors = model(&[MIB; 800]);
        let mut ahead = ahead(16 * MIB);
        (0..800).for_each(|number| ahead.want(number));
        for number in 0..400 {
            get(&mut ahead, &tensors, number);
            get(&mut ahead, &tensors, number + 400);
        }
        let ReaderReport { requested, read, .. } = ahead.report;
        assert!(read <= 2 * requested + 2 * 16 * MIB, "{:?}", ahead.report);
    }

    #[test]
    fn announced_requests_from_the_end_stay_within_the_window() {
        let tensors = model(&[MIB; 400]);
        let mut ahead = ahead(16 * MIB);
        (0..400).for_each(|number| ahead.want(number));
        let mut most = 0;
        for number in (0..400).step_by(8).rev() {
            get(&mut ahead, &tensors, number);
            most = most.max(ahead.held);
        }
        assert!(most <= 16 * MIB, "{most} bytes are held");
    }
}
