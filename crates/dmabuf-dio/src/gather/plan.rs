// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which requests a call makes, and what their results say about its pieces.

use std::collections::VecDeque;
use std::ops::Range;

use super::aside::{Asides, NOWHERE};
use super::check::{Checked, Order};
use super::piece::{Piece, Rules};
use crate::errno::Errno;

/// Pieces that are one range in the file and in the buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) file: u64,
    pub(super) buf: u64,
    pub(super) len: u64,
    /// Which entries these are, of the order or of those aside.
    pub(super) first: u32,
    pub(super) count: u32,
}

/// A request for a group or part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) group: Group,
    /// Whether the entries are those aside.
    aside: bool,
    /// Through the page cache: the file system refuses `O_DIRECT`.
    pub(super) buffered: bool,
}

/// What became of a piece that is not whole at its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exception {
    EndOfFile { end: u64 },
    Failed { offset: u64, errno: Errno },
    NoRoom { needed: u64 },
}

impl Exception {
    /// Where in the file it was met.
    fn offset(self) -> u64 {
        match self {
            Self::EndOfFile { end } => end,
            Self::Failed { offset, .. } => offset,
            Self::NoRoom { .. } => 0,
        }
    }
}

/// What a call did.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Requests that came to an end.
    pub(super) requests: u64,
    /// Pieces that shared the request of another.
    pub(super) shared: u64,
    /// Bytes that requests moved.
    pub(super) moved: u64,
    /// How many of them with `O_DIRECT`.
    pub(super) direct: u64,
}

/// The requests of a call: made one by one, so that ten million pieces need no more memory than
/// they have.
pub(super) struct Plan<'p> {
    pieces: &'p [Piece],
    rules: Rules,
    /// Bytes in a request.
    limit: u64,
    /// Where the file ended when the call began.
    end: u64,
    order: Order,
    /// The next entry of the order, and how many there are.
    next: usize,
    entries: usize,
    asides: Asides,
    /// What comes first: what is left of a group that is longer than a request, or to be made
    /// once more.
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

    /// Writes down the next request, unless all were made that are known of.
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

    /// The next request that is made once more, or of pieces that are not aligned.
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
        self.counts.shared += u64::from(group.count) - 1;
        *request = Request { group, aside: true, buffered: false };
        true
    }

    /// The next pieces that are read to their places.
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
                if piece.file_offset == last.file_end()
                    && piece.buf_offset == last.buf_end()
                    && piece.len > 0
                    // A request across the end would zero its place.
                    && piece.file_offset < self.end
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
            group.file = start.file_offset;
            group.buf = start.buf_offset;
            group.len = len;
            group.first = first as u32;
            group.count = count;
            self.counts.shared += u64::from(count) - 1;
            return true;
        }
        false
    }

    /// Makes a request once more.
    pub(super) fn again(&mut self, request: Request) {
        self.again.push_back(request);
    }

    /// Says how a request ended: bytes moved, or a negative error number.
    #[inline]
    pub(super) fn complete(&mut self, request: &Request, result: i64) {
        self.counts.requests += 1;
        if result > 0 {
            self.counts.moved += result as u64;
            if !request.buffered {
                self.counts.direct += result as u64;
            }
        }
        if result != request.group.len as i64 {
            self.complete_in_part(*request, result);
        }
    }

    #[cold]
    fn complete_in_part(&mut self, request: Request, result: i64) {
        let direct = self.rules.are_direct() && !request.buffered;
        if result >= 0 {
            let moved = result as u64;
            let rest = after(request, moved);
            let block = if direct { self.rules.block } else { 1 };
            if moved == 0 || !moved.is_multiple_of(block) {
                self.end_of_file(request, rest.group.file);
            } else {
                self.again.push_back(rest);
            }
            return;
        }
        let errno = Errno::from_raw(-result as i32);
        match errno.raw() {
            libc::EINTR | libc::EAGAIN => self.again.push_back(request),
            // The file system has O_DIRECT and does not do it.
            libc::EINVAL if direct => self.again.push_back(Request { buffered: true, ..request }),
            _ => self.fail(request, errno),
        }
    }

    fn end_of_file(&mut self, request: Request, end: u64) {
        for (number, _) in self.of(request) {
            if self.pieces[number as usize].file_end() > end {
                self.exceptions.push((number, Exception::EndOfFile { end }));
            }
        }
    }

    /// A piece failed, or one of several: then each is tried alone.
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

    /// What of a request each of its pieces needs.
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

    /// What is known of the pieces when there is no request left. `end` is where the file ends
    /// now: what was read behind it before it shrank does not count.
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
        let starts = self.asides.into_starts();
        Outcome { starts, exceptions: self.exceptions, counts: self.counts }
    }
}

/// What became of all pieces: those that are not mentioned are whole and at their places.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    /// Where pieces begin that are not aligned, by number.
    pub(super) starts: Vec<(u32, u64)>,
    /// By number.
    pub(super) exceptions: Vec<(u32, Exception)>,
    pub(super) counts: Counts,
}

/// What of a request is left when `moved` bytes of it are there.
fn after(request: Request, moved: u64) -> Request {
    let Group { file, buf, len, .. } = request.group;
    let group = Group { file: file + moved, buf: buf + moved, len: len - moved, ..request.group };
    Request { group, ..request }
}
