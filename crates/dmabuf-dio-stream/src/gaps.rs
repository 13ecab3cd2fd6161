// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeps account of lost samples and their positions.
//!
//! A device fills one block after the other. If it has none, it loses frames between the last block
//! and the next one queued, which is an exact position. The number of lost frames comes from a
//! counter of the device, if it has one. A reading of the counter may cover more than one such
//! position.
//!
//! The same holds for a device that outputs blocks: without a block it has nothing to output.

/// The end of a stream that lost frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "lowercase"))]
pub enum Loss {
    /// The source: these frames are missing in the data.
    #[default]
    Lost,
    /// The sink: it had nothing to output for the duration of these frames. None is missing.
    Underrun,
}

/// Lost samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Gap {
    /// Whether the source or the sink lost them.
    pub kind: Loss,
    /// Minimum offset in the sink's data, in bytes.
    pub at: u64,
    /// Maximum offset in the sink's data, in bytes: equal to `at`, unless frames were lost at more
    /// than one position between two readings of the device's counter.
    pub to: u64,
    /// Number of lost frames; `None` if the device does not report it.
    pub frames: Option<u64>,
}

/// A device's report of its losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// The frames that it has lost since its start.
    Count(u64),
    /// Whether it has lost frames since the last reading, without their number.
    Noted(bool),
    /// It does not report losses.
    Nothing,
}

impl Reading {
    /// How many frames it has lost, if it says so.
    pub fn count(self) -> Option<u64> {
        if let Self::Count(lost) = self { Some(lost) } else { None }
    }
}

/// Losses by their position in the bytes queued to a device: requested from a source, or given to a
/// sink.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    kind: Loss,
    /// Bytes of returned blocks that the device may still hold.
    behind: u64,
    /// Bytes that the device may hold itself, beyond those that are queued.
    ahead: u64,
    /// Bytes queued.
    queued: u64,
    /// Bytes returned.
    taken: u64,
    /// Last reading of the device's counter.
    told: u64,
    /// Minimum position of the device at that reading.
    since: u64,
    /// The first and last position since then at which it had no block.
    dry: Option<(u64, u64)>,
    losses: Vec<Gap>,
    waits: bool,
    /// Gaps that the source itself reports in its data.
    told_of: Vec<Gap>,
}

impl Ledger {
    pub(super) fn new(kind: Loss) -> Self {
        Self { kind, ..Self::default() }
    }

    /// Sets how many of the returned bytes the device may still hold.
    pub(super) fn set_behind(&mut self, bytes: u64) {
        self.behind = bytes;
    }

    /// Sets how many bytes the device may hold itself.
    pub(super) fn set_ahead(&mut self, bytes: u64) {
        self.ahead = bytes;
    }

    /// Records that a block was queued, to a device that may have had none.
    pub(super) fn queued(&mut self, bytes: u64, was_dry: bool) {
        if was_dry {
            self.was_dry();
        }
        self.queued += bytes;
    }

    fn was_dry(&mut self) {
        let first = self.dry.map_or(self.queued, |(first, _)| first);
        self.dry = Some((first, self.queued));
    }

    /// Records the device's report. `dry`: it has no block at the moment. `last`: it will get no
    /// more blocks, so losses from here on do not count.
    pub(super) fn reading(&mut self, (lost, dry): (Reading, bool), last: bool) {
        let resolved = self.dry;
        if dry {
            self.was_dry();
        }
        let nothing = match lost {
            Reading::Count(lost) => lost <= self.told,
            Reading::Noted(noted) => !noted,
            Reading::Nothing => false,
        };
        let place = match lost {
            _ if nothing => None,
            Reading::Nothing => resolved.filter(|(at, _)| *at < self.queued),
            // It always had blocks to fill, so the loss is its own.
            _ => Some(self.dry.unwrap_or((self.since, self.queued)))
                .filter(|(at, _)| !(last && *at == self.queued))
                .map(|(at, to)| (at, to.saturating_add(self.ahead))),
        };
        let before = self.told;
        let frames = match lost {
            Reading::Count(lost) => {
                self.told = lost.max(before);
                Some(self.told - before)
            }
            _ => None,
        };
        self.losses.extend(place.map(|(at, to)| Gap { kind: self.kind, at, to, frames }));
        self.waits = nothing && self.told == 0 && self.dry.is_some();
        self.dry = dry.then_some((self.queued, self.queued));
        self.since = self.taken.saturating_sub(self.behind);
    }

    /// Whether the device has been without a block since the last reading.
    pub(super) fn is_unread(&self) -> bool {
        self.dry.is_some()
    }

    /// Whether the device counts, had no block at the last reading, and has never lost anything: it
    /// seems to wait for blocks, and its counter need not be read each time.
    pub(super) fn waits(&self) -> bool {
        self.waits
    }

    /// Records that a block came back. Returns its start.
    pub(super) fn taken(&mut self, bytes: u64) -> u64 {
        self.taken += bytes;
        self.taken - bytes
    }

    /// Sets the gaps that the source itself reports. These are no losses of the source.
    pub(super) fn set_told(&mut self, gaps: &[Gap]) {
        if self.told_of != gaps {
            self.told_of = gaps.to_vec();
        }
    }

    /// The number of frames, and of gaps, that the source itself reports as missing.
    pub(super) fn told_totals(&self) -> (u64, usize) {
        let frames = self.told_of.iter().filter_map(|gap| gap.frames).fold(0, u64::saturating_add);
        (frames, self.told_of.len())
    }

    /// Total lost frames, and at how many positions.
    pub(super) fn totals(&self) -> (u64, usize) {
        let lost: u64 = self.losses.iter().filter_map(|gap| gap.frames).sum();
        (lost, self.losses.len())
    }

    /// Lost frames at and before a position in the bytes queued.
    pub(super) fn lost_before(&self, place: u64) -> u64 {
        let before = self.losses.iter().filter(|gap| gap.at <= place);
        before.filter_map(|gap| gap.frames).sum()
    }

    /// Takes out the losses at and before a position in the bytes queued, together.
    pub(super) fn pass(&mut self, place: u64) -> Option<Gap> {
        let (passed, ahead) = self.losses.drain(..).partition(|gap| gap.at <= place);
        self.losses = ahead;
        let passed: Vec<Gap> = passed;
        passed.into_iter().reduce(|one, other| Gap {
            at: one.at.min(other.at),
            to: one.to.max(other.to),
            frames: one.frames.zip(other.frames).map(|(a, b)| a.saturating_add(b)),
            ..one
        })
    }

    /// Whether the number of frames lost somewhere is not known.
    pub(super) fn is_uncounted(&self) -> bool {
        self.losses.iter().any(|gap| gap.frames.is_none())
    }

    /// The gaps in the sink's data, `bytes` in all. `at_end`: also the one after the last byte.
    pub(super) fn gaps(&self, bytes: u64, at_end: bool) -> Vec<Gap> {
        let losses = self.losses.iter().chain(&self.told_of);
        let within = losses.filter(|gap| gap.at < bytes || at_end && gap.at == bytes);
        let mut all: Vec<_> = within.map(|gap| Gap { to: gap.to.min(bytes), ..*gap }).collect();
        all.sort_by_key(|gap| (gap.at, gap.to));
        let mut gaps: Vec<Gap> = Vec::new();
        for gap in all {
            match gaps.last_mut() {
                // Gaps that touch cannot be told apart.
                Some(last) if gap.at <= last.to => {
                    last.to = last.to.max(gap.to);
                    last.frames = last.frames.zip(gap.frames).map(|(a, b)| a.saturating_add(b));
                }
                _ => gaps.push(gap),
            }
        }
        gaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gap(at: u64, to: u64, frames: impl Into<Option<u64>>) -> Gap {
        Gap { kind: Loss::Lost, at, to, frames: frames.into() }
    }

    /// A source with four requested blocks of 80 bytes, ten frames each.
    fn four() -> Ledger {
        let mut ledger = Ledger::new(Loss::Lost);
        for _ in 0..4 {
            ledger.queued(80, false);
        }
        ledger.reading((Reading::Count(0), false), false);
        ledger
    }

    #[test]
    fn zero_losses_leave_no_gap() {
        let mut ledger = four();
        ledger.taken(80);
        ledger.reading((Reading::Count(0), false), false);
        assert_eq!((ledger.totals(), ledger.gaps(80, false)), ((0, 0), vec![]));
    }

    #[test]
    fn loss_without_a_block_is_placed_between_blocks() {
        let mut ledger = four();
        for _ in 0..4 {
            ledger.taken(80);
        }
        ledger.reading((Reading::Count(3), true), false);
        ledger.queued(80, true);
        ledger.reading((Reading::Count(5), false), false);
        ledger.taken(80);
        assert_eq!(ledger.gaps(400, false), [gap(320, 320, 5)]);
        assert_eq!(ledger.totals(), (5, 2));
        assert_eq!(ledger.gaps(320, false), [], "nothing came behind it");
        assert_eq!(ledger.gaps(320, true), [gap(320, 320, 5)]);
        assert_eq!((ledger.lost_before(319), ledger.lost_before(320)), (0, 5));
    }

    #[test]
    fn loss_behind_what_the_device_holds_itself_is_within_its_gap() {
        let mut ledger = four();
        ledger.set_ahead(160);
        for _ in 0..3 {
            ledger.taken(80);
        }
        ledger.reading((Reading::Count(3), false), false);
        // Three blocks are with the sink, and the fourth may be read in part: the device loses frames behind what it holds.
        assert_eq!(ledger.gaps(640, false), [gap(0, 480, 3)]);
    }

    #[test]
    fn loss_after_the_last_block_is_ignored() {
        let mut ledger = four();
        for _ in 0..4 {
            ledger.taken(80);
        }
        ledger.reading((Reading::Count(3), true), true);
        assert_eq!((ledger.totals(), ledger.gaps(320, false)), ((0, 0), vec![]));
    }

    #[test]
    fn two_losses_between_readings_share_a_gap() {
        let mut ledger = four();
        for _ in 0..4 {
            ledger.taken(80);
        }
        ledger.queued(80, true);
        // By now that block is full too.
        ledger.reading((Reading::Count(7), true), false);
        ledger.taken(80);
        ledger.queued(80, true);
        ledger.reading((Reading::Count(8), false), false);
        assert_eq!(ledger.gaps(480, false), [gap(320, 400, 8)]);
    }

    #[test]
    fn loss_by_the_device_spans_the_queued_blocks() {
        let mut ledger = four();
        ledger.taken(80);
        ledger.reading((Reading::Count(0), false), false);
        ledger.taken(80);
        ledger.reading((Reading::Count(9), false), false);
        assert_eq!(ledger.gaps(320, false), [gap(80, 320, 9)]);
    }

    /// Bytes that are written are not output yet.
    #[test]
    fn loss_by_a_buffering_device_is_placed_earlier() {
        let mut ledger = Ledger::new(Loss::Underrun);
        ledger.set_behind(100);
        for _ in 0..4 {
            ledger.queued(80, false);
        }
        for _ in 0..2 {
            ledger.taken(80);
        }
        ledger.reading((Reading::Count(0), false), false);
        ledger.taken(80);
        ledger.reading((Reading::Count(9), false), false);
        let wanted = Gap { kind: Loss::Underrun, ..gap(60, 320, 9) };
        assert_eq!(ledger.gaps(320, false), [wanted]);
    }

    #[test]
    fn uncounted_loss_has_a_gap_of_unknown_length() {
        let mut ledger = four();
        ledger.reading((Reading::Nothing, false), false);
        ledger.queued(80, true);
        ledger.reading((Reading::Nothing, false), false);
        ledger.reading((Reading::Nothing, true), false);
        assert_eq!(ledger.gaps(400, false), [gap(320, 320, None)]);
    }

    #[test]
    fn noted_loss_has_a_gap() {
        let mut ledger = four();
        ledger.reading((Reading::Noted(false), false), false);
        ledger.taken(80);
        // The device had no block, but lost nothing: its buffer was long enough.
        ledger.reading((Reading::Noted(false), true), false);
        ledger.queued(80, true);
        ledger.reading((Reading::Noted(false), false), false);
        assert_eq!(ledger.totals(), (0, 0));
        ledger.taken(80);
        ledger.reading((Reading::Noted(true), false), false);
        assert_eq!(ledger.gaps(400, false), [gap(80, 400, None)]);
        assert!(ledger.is_uncounted());
    }

    /// The summary of a stream that delivered `bytes`.
    fn told(ledger: &Ledger, bytes: u64) -> Vec<Gap> {
        ledger.gaps(bytes, false)
    }

    #[test]
    fn waiting_device_has_lost_nothing_yet() {
        let mut ledger = four();
        ledger.reading((Reading::Nothing, true), false);
        ledger.reading((Reading::Nothing, true), false);
        assert_eq!(ledger.totals(), (0, 0));
        ledger.queued(80, true);
        ledger.reading((Reading::Nothing, false), false);
        assert_eq!((ledger.totals(), told(&ledger, 400)), ((0, 1), vec![gap(320, 320, None)]));
    }

    #[test]
    fn gaps_end_within_the_data() {
        let mut ledger = four();
        ledger.taken(80);
        ledger.reading((Reading::Count(9), false), false);
        assert_eq!(told(&ledger, 240), [gap(0, 240, 9)]);
    }
}
