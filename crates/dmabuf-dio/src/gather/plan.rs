// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plans the requests of a call, and maps their results to its pieces.

use std::collections::VecDeque;
use std::ops::Range;

use super::aside::{Asides, NOWHERE};
use super::check::{Checked, Order};
use super::outcome::{Counts, Exception, Outcome};
use super::piece::{Group, Piece, Rules};
use crate::errno::Errno;
use crate::lend::Verdict;

/// A request for a group or part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) group: Group,
    /// Whether the entries belong to the unaligned pieces.
    pub(super) aside: bool,
    /// Through the page cache: the file system refused `O_DIRECT`.
    pub(super) buffered: bool,
}

/// The requests of a call. They are generated one by one, so that ten million pieces need no
/// additional memory.
pub(super) struct Plan<'p> {
    pieces: &'p [Piece],
    rules: Rules,
    /// Maximum bytes per request.
    limit: u64,
    /// End of the file when the call began.
    end: u64,
    order: Order,
    /// The next entry of the order, and the number of entries.
    next: usize,
    entries: usize,
    asides: Asides,
    /// Requests to make first: the rest of a group longer than a request, and retries.
    again: VecDeque<Request>,
    exceptions: Vec<(u32, Exception)>,
    pub(super) counts: Counts,
}

impl<'p> Plan<'p> {
    pub(super) fn new(
        pieces: &'p [Piece],
        checked: Checked,
        rules: Rules,
        spare: &Range<u64>,
        end: u64,
    ) -> Self {
        Self {
            pieces,
            rules,
            limit: rules.limit(),
            end,
            next: 0,
            entries: checked.order.len(pieces),
            order: checked.order,
            asides: Asides::new(pieces, checked.asides, rules, spare),
            again: VecDeque::new(),
            exceptions: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// Number of pieces.
    pub(super) fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// Writes the next request to `request`. Returns `false` if there is none at the moment.
    #[inline]
    pub(super) fn next(&mut self, request: &mut Request) -> bool {
        if self.again.is_empty() && self.next_group(&mut request.group) {
            request.aside = false;
            request.buffered = false;
        } else if !self.next_special(request) {
            return false;
        }
        if request.group.len > self.limit {
            self.again.push_front(after(*request, self.limit));
            request.group.len = self.limit;
        }
        true
    }

    /// The next retry, or request for unaligned pieces.
    #[cold]
    fn next_special(&mut self, request: &mut Request) -> bool {
        if let Some(again) = self.again.pop_front() {
            *request = again;
            return true;
        }
        let exceptions = &mut self.exceptions;
        let refuse = |number, needed| exceptions.push((number, Exception::NoRoom { needed }));
        let Some(group) = self.asides.next_group(self.pieces, self.rules, refuse) else {
            return false;
        };
        *request = Request { group, aside: true, buffered: false };
        // Those without room share nothing.
        let has_room = |(_, start): &&(u32, u64)| *start != NOWHERE;
        self.counts.shared += self.of(*request).iter().filter(has_room).count() as u64 - 1;
        true
    }

    /// The next pieces to be read to their places.
    #[inline]
    fn next_group(&mut self, group: &mut Group) -> bool {
        while self.next < self.entries {
            let first = self.next;
            let mut last = &self.pieces[self.order.number(first)];
            self.next += 1;
            if last.len == 0 || self.rules.is_aside(last) {
                continue;
            }
            let (mut len, mut count) = (last.len, 1);
            while self.next < self.entries {
                let piece = &self.pieces[self.order.number(self.next)];
                if piece.offset == last.file_end()
                    && piece.buf_offset == last.buf_end()
                    && piece.len > 0
                    // A request across the end of the file would zero its place.
                    && piece.offset < self.end
                    && len + piece.len <= self.limit
                    && !self.rules.is_aside(piece)
                {
                    len += piece.len;
                } else if piece != last {
                    break;
                }
                last = piece;
                count += 1;
                self.next += 1;
            }
            let start = &self.pieces[self.order.number(first)];
            group.file = start.offset;
            group.buf = start.buf_offset;
            group.len = len;
            group.first = first as u32;
            group.count = count;
            self.counts.shared += u64::from(count) - 1;
            return true;
        }
        false
    }

    /// Queues a request for a retry.
    pub(super) fn again(&mut self, request: Request) {
        self.again.push_back(request);
    }

    /// Records the result of a request: bytes moved, or why none.
    #[inline]
    pub(super) fn complete(&mut self, request: &Request, result: Result<u64, Errno>) {
        self.counts.requests += 1;
        let moved = result.unwrap_or(0);
        self.counts.moved += moved;
        if !request.buffered {
            self.counts.direct += moved;
        }
        if moved != request.group.len {
            self.complete_in_part(*request, result);
        }
    }

    #[cold]
    fn complete_in_part(&mut self, request: Request, result: Result<u64, Errno>) {
        let direct = self.rules.are_direct() && !request.buffered;
        let file = request.group.file;
        match Verdict::of(result, request.group.len, direct) {
            Verdict::Whole => {}
            Verdict::Nothing => self.end_of_file(request, file),
            // Short reads may occur anywhere. At a known end of the file no retry is needed;
            // beyond it, the file has grown and its end is not known.
            Verdict::Rest(moved) if moved > 0 && file + moved == self.end => {
                self.end_of_file(request, file + moved);
            }
            Verdict::Rest(moved) => self.again.push_back(after(request, moved)),
            Verdict::NotDirect => self.again.push_back(Request { buffered: true, ..request }),
            Verdict::Failed(errno) => self.fail(request, errno),
        }
    }

    fn end_of_file(&mut self, request: Request, end: u64) {
        for (number, _) in self.of(request) {
            if self.pieces[number as usize].file_end() > end {
                self.exceptions.push((number, Exception::EndOfFile { end }));
            }
        }
    }

    /// Records a failure. If the request has several pieces, each is retried alone.
    fn fail(&mut self, request: Request, errno: Errno) {
        let mut alone = self.alone(request);
        if alone.len() > 1 {
            self.again.extend(alone);
        } else if let Some(request) = alone.pop() {
            let offset = request.group.file;
            let failed = |(number, _)| (number, Exception::Failed { offset, errno });
            self.exceptions.extend(self.of(request).into_iter().map(failed));
        }
    }

    /// Splits a request into one request per piece.
    fn alone(&self, request: Request) -> Vec<Request> {
        let (whole, mut all) = (request.group, Vec::<Request>::new());
        let mut before = None;
        for (entry, (number, start)) in (whole.first..).zip(self.of(request)) {
            let piece = &self.pieces[number as usize];
            let (file, end) = self.rules.blocks(piece);
            let (file, end) = (file.max(whole.file), end.min(whole.file + whole.len));
            if start == NOWHERE || file >= end {
                continue;
            }
            match all.last_mut() {
                Some(last) if before == Some((entry, piece)) => last.group.count += 1,
                _ => {
                    let buf = whole.buf + (file - whole.file);
                    let group = Group { file, buf, len: end - file, first: entry, count: 1 };
                    all.push(Request { group, ..request });
                }
            }
            before = Some((entry + 1, piece));
        }
        all
    }

    /// Numbers and starts of the pieces of a request.
    fn of(&self, request: Request) -> Vec<(u32, u64)> {
        let Group { first, count, .. } = request.group;
        let entry = |entry: u32| {
            if request.aside {
                return self.asides.entry(entry);
            }
            let number = self.order.number(entry as usize);
            (number as u32, self.pieces[number].buf_offset)
        };
        (first..first + count).map(entry).collect()
    }

    /// The results, once no request is left. `end` is the current end of the file: data read beyond
    /// it before a truncation does not count.
    pub(super) fn finish(mut self, end: Option<u64>) -> Outcome {
        if let Some(end) = end {
            let behind = |(number, piece): (u32, &Piece)| {
                let is_behind = piece.len > 0 && piece.file_end() > end;
                is_behind.then_some((number, Exception::EndOfFile { end }))
            };
            self.exceptions.extend((0..).zip(self.pieces).filter_map(behind));
        }
        self.exceptions.sort_by_key(|(number, exception)| (*number, exception.offset()));
        self.exceptions.dedup_by_key(|(number, _)| *number);
        if !self.rules.are_direct() {
            self.counts.direct = 0;
        }
        let starts = self.asides.into_starts();
        Outcome { starts, exceptions: self.exceptions, counts: self.counts }
    }
}

/// The rest of a request after `moved` bytes.
fn after(request: Request, moved: u64) -> Request {
    let Group { file, buf, len, .. } = request.group;
    let group = Group { file: file + moved, buf: buf + moved, len: len - moved, ..request.group };
    Request { group, ..request }
}

#[cfg(test)]
mod tests {
    use super::super::check::{Bounds, check};
    use super::*;

    const RULES: Rules = Rules { block: 512, memory: 4 };
    const END: u64 = 1 << 20;
    const SPARE: Range<u64> = 3 << 20..4 << 20;

    /// A result: bytes moved, or a negative error number.
    fn given(result: i64) -> Result<u64, Errno> {
        u64::try_from(result).map_err(|_| Errno::from_raw(-result as i32))
    }

    /// Executes the plan for these pieces on a simulated device with a file of [`END`] bytes.
    /// Returns the requests as well.
    fn run(
        pieces: &[(u64, u64, u64)],
        mut answer: impl FnMut(&Request) -> Option<i64>,
    ) -> (Vec<Request>, Outcome) {
        let piece =
            |&(offset, buf_offset, len): &(u64, u64, u64)| Piece { offset, buf_offset, len };
        let pieces: Vec<_> = pieces.iter().map(piece).collect();
        let bounds = Bounds { buffer: 4 << 20, spare: SPARE, rules: RULES };
        let checked = check(&pieces, &bounds).expect("fit");
        let mut plan = Plan::new(&pieces, checked, RULES, &SPARE, END);
        let (mut request, mut made) = (Request::default(), Vec::new());
        while plan.next(&mut request) {
            let Group { file, len, .. } = request.group;
            assert!(len > 0 && len <= RULES.limit() && made.len() < 10_000, "{request:?}");
            made.push(request);
            let there = END.saturating_sub(file).min(len) as i64;
            plan.complete(&request, given(answer(&request).unwrap_or(there)));
        }
        (made, plan.finish(None))
    }

    fn touches(request: &Request, byte: u64) -> bool {
        (request.group.file..request.group.file + request.group.len).contains(&byte)
    }

    fn failed(outcome: &Outcome) -> Vec<(u32, u64)> {
        let failed = |(number, exception): &(u32, Exception)| match exception {
            Exception::Failed { offset, .. } => (*number, *offset),
            other => panic!("{other:?}"),
        };
        outcome.exceptions.iter().map(failed).collect()
    }

    #[test]
    fn bad_neighbour_fails_alone() {
        let pieces: Vec<_> = (0..20).map(|at| (at * 4096, at * 4096, 4096)).collect();
        let eio = |request: &Request| touches(request, 20_500).then_some(-i64::from(libc::EIO));
        let (made, outcome) = run(&pieces, eio);
        assert_eq!(failed(&outcome), [(5, 20_480)]);
        assert_eq!(made.len(), 21, "all at once, and then each");
    }

    #[test]
    fn repeated_bad_pieces_fail_together() {
        let pieces = [(0, 0, 512), (0, 0, 512), (512, 512, 512), (0, 0, 512)];
        let eio = |request: &Request| touches(request, 0).then_some(-i64::from(libc::EIO));
        let (made, outcome) = run(&pieces, eio);
        assert_eq!(failed(&outcome), [(0, 0), (1, 0), (3, 0)]);
        assert_eq!(made.len(), 3);
    }

    #[test]
    fn bad_shared_block_fails_only_its_pieces() {
        // A long unaligned piece with short ones within it: in its bad block, and elsewhere.
        let long = 3 * RULES.limit() + 1;
        let pieces = [(0, 0, long), (700, 1 << 20, 9), (300_000, 2 << 20, 9), (1, 2 << 19, 9)];
        let pieces = [pieces[0], pieces[1], pieces[2], (pieces[3].0, 1_100_000, 9)];
        let eio = |request: &Request| touches(request, 600).then_some(-i64::from(libc::EIO));
        let (_, outcome) = run(&pieces, eio);
        assert_eq!(failed(&outcome), [(0, 0), (1, 512)]);
        let all = |_: &Request| Some(-i64::from(libc::EIO));
        let (made, outcome) = run(&pieces, all);
        assert_eq!(failed(&outcome), [(0, 0), (1, 512), (2, 299_520), (3, 0)]);
        assert!(made.len() < 12, "{}", made.len());
    }

    #[test]
    fn short_and_interrupted_requests_are_continued() {
        let mut count = 0;
        let (made, outcome) = run(&[(0, 0, 8192), (512, 8192, 4096)], |request| {
            count += 1;
            match count {
                1 => Some(-i64::from(libc::EINTR)),
                2 => Some(512),
                3 => Some(-i64::from(libc::EAGAIN)),
                _ => Some(request.group.len.min(1024) as i64),
            }
        });
        assert!(outcome.exceptions.is_empty());
        assert_eq!(outcome.counts.moved, 8192 + 4096);
        let places: Vec<_> = made.iter().map(|one| (one.group.file, one.group.buf)).collect();
        assert!(places.contains(&(512, 512)) && places.contains(&(1536, 9216)), "{places:?}");
    }

    #[test]
    fn short_reads_may_end_anywhere() {
        let some =
            |request: &Request| Some(request.group.len.min(1 + request.group.file % 777) as i64);
        let (made, outcome) = run(&[(0, 0, 8192), (99, 8192, 5000)], some);
        assert!(outcome.exceptions.is_empty());
        assert_eq!(outcome.counts.moved, 8192 + 5120);
        assert!(made.len() > 30, "{}", made.len());
        // The file's end at the start of the call is known, so no request is needed there.
        let (made, outcome) = run(&[(END - 100 - 412, 0, 4096)], |_| None);
        assert_eq!((made.len(), outcome.exceptions.len()), (1, 1));
    }

    #[test]
    fn short_reads_of_a_grown_file_are_continued() {
        let mut count = 0;
        let (made, outcome) = run(&[(END - 512, 0, 4096)], |request| {
            count += 1;
            Some(if count == 1 { 1024 } else { request.group.len as i64 })
        });
        assert_eq!((made.len(), outcome.exceptions.len()), (2, 0));
        assert_eq!(outcome.counts.moved, 4096);
    }

    #[test]
    fn empty_read_marks_the_end_of_file() {
        let mut seen = 0;
        let pieces = [(0, 0, 4096), (4096, 4096, 4096), (8192, 8192, 4096), (99, 20_480, 5000)];
        let (_, outcome) = run(&pieces, |request| {
            seen += 1;
            Some(5000_u64.saturating_sub(request.group.file).min(request.group.len) as i64)
        });
        let end = Exception::EndOfFile { end: 5000 };
        assert_eq!(outcome.exceptions, [(1, end), (2, end), (3, end)]);
        assert_eq!((seen, outcome.starts), (4, vec![(3, SPARE.start + 99)]));
    }

    #[test]
    fn pieces_beyond_the_end_are_not_merged() {
        let pieces = [(END - 4096, 0, 4096), (END, 4096, 4096), (END + 4096, 8192, 4096)];
        let (made, outcome) = run(&pieces, |_| None);
        assert_eq!((made.len(), outcome.exceptions.len()), (3, 2));
    }

    #[test]
    fn refused_direct_io_falls_back_to_the_page_cache() {
        let refuse = |request: &Request| (!request.buffered).then_some(-i64::from(libc::EINVAL));
        let (made, outcome) = run(&[(0, 0, 4096), (77, 4096, 1)], refuse);
        assert!(outcome.exceptions.is_empty());
        assert_eq!((made.len(), outcome.counts.direct, outcome.counts.moved), (4, 0, 4608));
        // If the retry is refused as well, the piece fails.
        let (made, outcome) = run(&[(0, 0, 4096)], |_| Some(-i64::from(libc::EINVAL)));
        assert_eq!((made.len(), failed(&outcome)), (2, vec![(0, 0)]));
    }

    #[test]
    fn shrunk_file_fails_pieces_beyond_its_end() {
        let checked = |pieces: &[Piece]| {
            let bounds = Bounds { buffer: 4 << 20, spare: SPARE, rules: RULES };
            check(pieces, &bounds).expect("fit")
        };
        let piece = |at: u64| Piece { offset: at * 512, buf_offset: at * 512, len: 512 };
        let pieces: Vec<_> = (0..4).map(piece).collect();
        let plan = Plan::new(&pieces, checked(&pieces), RULES, &SPARE, END);
        let end = Exception::EndOfFile { end: 1000 };
        assert_eq!(plan.finish(Some(1000)).exceptions, [(1, end), (2, end), (3, end)]);
    }

    #[test]
    fn retries_keep_their_buffer_offsets() {
        let pieces: Vec<_> =
            (0..20).map(|at| (8192 + at * 4096, 65_536 + at * 4096, 4096)).collect();
        let eio = |request: &Request| touches(request, 50_000).then_some(-i64::from(libc::EIO));
        let (made, outcome) = run(&pieces, eio);
        assert_eq!((made.len(), failed(&outcome)), (21, vec![(10, 49_152)]));
        assert!(made.iter().all(|one| one.group.buf - one.group.file == 65_536 - 8192));
    }

    #[test]
    fn pieces_sharing_requests_are_counted() {
        let (made, outcome) = run(
            // Three that are contiguous, three in two blocks, and one alone.
            &[(0, 0, 512), (512, 512, 512), (1024, 1024, 512)]
                .into_iter()
                .chain([(5000, 8192, 1), (5200, 9000, 1), (5001, 10_000, 300), (9001, 12_288, 1)])
                .collect::<Vec<_>>(),
            |_| None,
        );
        assert_eq!((made.len(), outcome.counts.shared), (3, 4));
    }

    #[test]
    fn pieces_without_room_share_nothing() {
        let pieces = [(0, 0, 1), (1, 1, 600), (2, 700, 1)];
        let pieces = pieces.map(|(offset, buf_offset, len)| Piece { offset, buf_offset, len });
        let bounds = Bounds { buffer: 4096, spare: 3584..4096, rules: RULES };
        let checked = check(&pieces, &bounds).expect("fit");
        let mut plan = Plan::new(&pieces, checked, RULES, &bounds.spare, END);
        let mut request = Request::default();
        assert!(plan.next(&mut request));
        plan.complete(&request, Ok(512));
        assert!(!plan.next(&mut request));
        let outcome = plan.finish(None);
        assert_eq!(outcome.exceptions, [(1, Exception::NoRoom { needed: 512 })]);
        assert_eq!((outcome.counts.requests, outcome.counts.shared), (1, 1));
    }

    #[test]
    fn empty_pieces_succeed_beyond_the_end() {
        let pieces = [(0, 0, 4096), (4096, 4096, 4096), (8192, 8192, 0)];
        let short = |request: &Request| Some(5000_u64.saturating_sub(request.group.file) as i64);
        let (_, outcome) = run(&pieces, short);
        assert_eq!(outcome.exceptions, [(1, Exception::EndOfFile { end: 5000 })]);
        let pieces = pieces.map(|(offset, buf_offset, len)| Piece { offset, buf_offset, len });
        let bounds = Bounds { buffer: 4 << 20, spare: SPARE, rules: RULES };
        let plan = Plan::new(&pieces, check(&pieces, &bounds).expect("fit"), RULES, &SPARE, END);
        let exceptions = plan.finish(Some(5000)).exceptions;
        assert_eq!(exceptions, [(1, Exception::EndOfFile { end: 5000 })]);
    }

    #[test]
    fn buffered_requests_are_not_retried() {
        let pieces = [Piece { offset: 0, buf_offset: 0, len: 10 }];
        let bounds = Bounds { buffer: 4096, spare: 0..0, rules: Rules::BUFFERED };
        for (result, moved, left) in [(10, 10, false), (-i64::from(libc::EINVAL), 0, false)] {
            let checked = check(&pieces, &bounds).expect("fit");
            let mut plan = Plan::new(&pieces, checked, Rules::BUFFERED, &(0..0), END);
            let mut request = Request::default();
            assert!(plan.next(&mut request));
            plan.complete(&request, given(result));
            assert_eq!(plan.next(&mut request), left, "it is not asked for again");
            let outcome = plan.finish(None);
            assert_eq!((outcome.counts.moved, outcome.counts.direct), (moved, 0));
        }
    }
}
