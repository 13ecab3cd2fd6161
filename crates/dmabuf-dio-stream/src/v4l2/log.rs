// SPDX-License-Identifier: MIT OR Apache-2.0
//! The log of a capture device's frames: their numbers and times, and the missing frames.

use std::collections::VecDeque;
use std::mem::take;

use dmabuf_dio_sys::v4l2::{Dequeued, FLAG_ERROR, FLAG_TIMESTAMP_MASK, FLAG_TIMESTAMP_MONOTONIC};

use crate::gaps::{Gap, Loss};

/// Frames that are listed one by one: an hour at 30 per second.
const LISTED: usize = 108_000;
/// More blocks than a ring has: those that a sink may not have delivered.
const RECENT: usize = 4100;
/// A number that is further ahead than this is an earlier one: the driver has started again.
const AHEAD: u32 = 1 << 31;

/// A frame that was captured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Frame {
    /// The driver's number of the frame; lost frames are counted. It does not wrap around.
    pub sequence: u64,
    /// When it was captured, in microseconds of [`FrameLog::clock`].
    pub microseconds: i64,
    /// Its length in bytes.
    pub bytes: u32,
    /// Offset of the frame in the data.
    pub offset: u64,
}

/// The clock of timestamps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "lowercase"))]
pub enum Clock {
    /// `CLOCK_MONOTONIC`.
    Monotonic,
    /// The driver does not say.
    #[default]
    Unknown,
}

/// The frames that a source has delivered, and those that it has not.
#[derive(Clone, Debug, Default)]
pub struct FrameLog {
    frames: u64,
    bytes: u64,
    first: Option<Frame>,
    listed: Vec<Frame>,
    /// The last ones.
    recent: VecDeque<Frame>,
    clock: Clock,
    /// The driver's number of the last frame, damaged ones included, and the sum of all steps.
    last: Option<(u32, u64)>,
    /// Missing since the last delivered frame, and whether there may be more.
    pending: u64,
    is_more: bool,
    damaged: u64,
    /// Numbers of frames differ.
    has_numbers: bool,
    gaps: Vec<Gap>,
    /// The length that all frames have.
    length: Option<u32>,
}

/// The treatment of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Whole,
    /// The driver marked it as damaged, or its length differs from the length of the others.
    Damaged,
}

impl FrameLog {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Records a frame. `fixed`: all frames have one length.
    pub(super) fn record(&mut self, one: &Dequeued, fixed: bool) -> Verdict {
        let sequence = self.count(one.sequence);
        let bad_length = fixed && self.length.is_some_and(|length| length != one.bytes);
        if one.flags & FLAG_ERROR != 0 || one.bytes == 0 || bad_length {
            self.damaged += 1;
            self.pending += 1;
            return Verdict::Damaged;
        }
        self.length.get_or_insert(one.bytes);
        let (missing, is_more) = (take(&mut self.pending), take(&mut self.is_more));
        if self.frames > 0 && (missing > 0 || is_more) {
            let (at, kind) = (self.bytes, Loss::Lost);
            let frames = (!is_more).then_some(missing);
            self.gaps.push(Gap { kind, at, to: at, frames });
        }
        if one.flags & FLAG_TIMESTAMP_MASK == FLAG_TIMESTAMP_MONOTONIC {
            self.clock = Clock::Monotonic;
        }
        let (microseconds, bytes, offset) = (one.microseconds, one.bytes, self.bytes);
        let frame = Frame { sequence, microseconds, bytes, offset };
        self.first.get_or_insert(frame);
        if self.listed.len() < LISTED {
            self.listed.push(frame);
        }
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(frame);
        self.frames += 1;
        self.bytes += u64::from(bytes);
        Verdict::Whole
    }

    /// Notes the frames that the driver has left out before number `sequence`. Returns the number
    /// without wraps.
    fn count(&mut self, sequence: u32) -> u64 {
        let Some((last, sum)) = self.last else {
            self.last = Some((sequence, sequence.into()));
            return sequence.into();
        };
        let step = sequence.wrapping_sub(last);
        match step {
            // It does not count, or gives a number twice, as vivid may.
            0 | 1 => {}
            2..AHEAD => self.pending += u64::from(step) - 1,
            _ => self.is_more = true,
        }
        self.has_numbers |= step > 0;
        let sum = if step < AHEAD { sum + u64::from(step) } else { sum + 1 };
        self.last = Some((sequence, sum));
        sum
    }

    /// Frames delivered to the stream.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// How many of the delivered frames are in the first `bytes` bytes of the data as a whole.
    pub fn frames_in(&self, bytes: u64) -> u64 {
        let is_beyond = |frame: &&Frame| frame.offset + u64::from(frame.bytes) > bytes;
        self.frames - self.recent.iter().rev().take_while(is_beyond).count() as u64
    }

    /// The first frame, and the last frame within the first `bytes` bytes of the data.
    pub fn ends(&self, bytes: u64) -> Option<(Frame, Frame)> {
        let is_within = |frame: &&Frame| frame.offset + u64::from(frame.bytes) <= bytes;
        let last = self.recent.iter().rev().find(is_within)?;
        Some((self.first?, *last))
    }

    /// A list of the frames: at most the first 108,000.
    pub fn listed(&self) -> &[Frame] {
        &self.listed
    }

    /// The gaps between frames, by offset in the data.
    pub fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    /// Frames that were captured but not delivered, because the driver marked them as damaged or
    /// their length differs from the length of the others. Gaps include those between two delivered
    /// frames.
    pub fn damaged(&self) -> u64 {
        self.damaged
    }

    /// Whether the driver numbers frames.
    pub fn has_numbers(&self) -> bool {
        self.has_numbers || self.frames < 2
    }

    /// The clock of the timestamps.
    pub fn clock(&self) -> Clock {
        self.clock
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(sequence: u32, bytes: u32, flags: u32) -> Dequeued {
        let microseconds = i64::from(sequence) * 40_000;
        Dequeued { sequence, bytes, flags, microseconds, ..Dequeued::default() }
    }

    fn log(frames: &[(u32, u32)], fixed: bool) -> FrameLog {
        let mut log = FrameLog::new();
        for &(sequence, bytes) in frames {
            log.record(&frame(sequence, bytes, FLAG_TIMESTAMP_MONOTONIC), fixed);
        }
        log
    }

    fn gap(at: u64, frames: impl Into<Option<u64>>) -> Gap {
        Gap { kind: Loss::Lost, at, to: at, frames: frames.into() }
    }

    #[test]
    fn missing_numbers_are_gaps() {
        let log = log(&[(3, 10), (4, 10), (7, 10), (8, 10), (10, 10)], true);
        // Nothing is missing before the first frame.
        assert_eq!(log.gaps(), [gap(20, 2), gap(40, 1)]);
        assert_eq!((log.frames(), log.damaged(), log.has_numbers()), (5, 0, true));
        let (first, last) = log.ends(50).expect("frames");
        assert_eq!((first.sequence, last.sequence, last.microseconds), (3, 10, 400_000));
        assert_eq!(log.clock(), Clock::Monotonic);
    }

    #[test]
    fn sequence_numbers_may_wrap() {
        let log = log(&[(u32::MAX - 1, 10), (u32::MAX, 10), (0, 10), (3, 10)], true);
        assert_eq!(log.gaps(), [gap(30, 2)]);
        let listed: Vec<_> = log.listed().iter().map(|frame| frame.sequence).collect();
        let max = u64::from(u32::MAX);
        assert_eq!(listed, [max - 1, max, max + 1, max + 4]);
    }

    #[test]
    fn restarted_and_missing_sequence_numbers_are_handled() {
        assert_eq!(log(&[(5, 10), (6, 10), (0, 10)], true).gaps(), [gap(20, None)]);
        let log = log(&[(0, 10), (0, 10), (0, 10)], true);
        assert_eq!((log.gaps(), log.has_numbers()), (&[][..], false));
        let twice = self::log(&[(0, 10), (1, 10), (1, 10), (2, 10)], true);
        assert_eq!((twice.gaps(), twice.has_numbers()), (&[][..], true));
    }

    #[test]
    fn damaged_frames_count_as_missing() {
        let mut log = FrameLog::new();
        for (sequence, bytes, flags, verdict) in [
            (0, 10, FLAG_ERROR, Verdict::Damaged),
            (1, 10, 0, Verdict::Whole),
            (2, 10, FLAG_ERROR, Verdict::Damaged),
            (4, 9, 0, Verdict::Damaged),
            (5, 0, 0, Verdict::Damaged),
            (6, 10, 0, Verdict::Whole),
            (7, 10, FLAG_ERROR, Verdict::Damaged),
        ] {
            assert_eq!(log.record(&frame(sequence, bytes, flags), true), verdict, "{sequence}");
        }
        // 2 and 3, 4, 5; but not 7, behind which nothing comes.
        assert_eq!((log.gaps(), log.damaged(), log.frames()), (&[gap(10, 4)][..], 5, 2));
    }

    #[test]
    fn compressed_frames_have_offsets() {
        let log = log(&[(0, 10), (1, 30), (2, 7)], false);
        let places: Vec<_> = log.listed().iter().map(|frame| (frame.offset, frame.bytes)).collect();
        assert_eq!(places, [(0, 10), (10, 30), (40, 7)]);
        assert_eq!(
            [0, 9, 10, 39, 40, 46, 47].map(|bytes| log.frames_in(bytes)),
            [0, 0, 1, 1, 2, 2, 3]
        );
        assert_eq!(log.ends(40).map(|(_, last)| last.sequence), Some(1));
        assert_eq!(log.ends(9), None);
    }
}
