// SPDX-License-Identifier: MIT OR Apache-2.0
//! The account of losses against a device that knows what it has lost, and where.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::drawn::{holds, one_of};
use crate::gaps::{Gap, Ledger, Loss, Reading};

const BLOCK: u64 = 80;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Queue so many blocks, together.
    Queue(u64),
    /// The device moves so many bytes, if it has them.
    Move(u64),
    /// It loses so many frames.
    Lose(u64),
    Take,
    Read,
}

/// How the device reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Report {
    Count,
    Noted,
    Nothing,
}

/// A device that knows its losses. It loses where it has no block, or else anywhere, but not both: its counter
/// does not tell which.
#[derive(Debug, Default)]
struct Device {
    queued: u64,
    moved: u64,
    taken: u64,
    lost: u64,
    told: u64,
    /// Place and frames of each loss.
    losses: Vec<(u64, u64)>,
}

impl Device {
    fn is_dry(&self) -> bool {
        self.moved == self.queued
    }

    fn reading(&mut self, report: Report) -> (Reading, bool) {
        let reading = match report {
            Report::Count => Reading::Count(self.lost),
            Report::Noted => Reading::Noted(self.lost > self.told),
            Report::Nothing => Reading::Nothing,
        };
        self.told = self.lost;
        (reading, self.is_dry())
    }

    /// Makes a step, and tells the ledger what a stream would. `behind`: bytes that the device holds back. `ahead`:
    /// bytes that it holds beyond those that it has moved.
    fn step(
        &mut self,
        step: Step,
        report: Report,
        behind: Option<u64>,
        ahead: u64,
        ledger: &mut Ledger,
    ) {
        match step {
            Step::Queue(count) => {
                let was_dry = self.is_dry() && self.queued > 0;
                for _ in 0..count {
                    ledger.queued(BLOCK, was_dry);
                    self.queued += BLOCK;
                }
            }
            Step::Move(bytes) => {
                // One that loses on its own always has a block.
                let most = self.queued - u64::from(behind.is_some()).min(self.queued);
                self.moved = (self.moved + bytes).min(most.max(self.moved));
            }
            Step::Lose(frames) => {
                let place = match behind {
                    None => self.is_dry().then_some(self.moved),
                    Some(bytes) => {
                        (!self.is_dry()).then(|| (self.moved + ahead).saturating_sub(bytes))
                    }
                };
                if let Some(place) = place.filter(|_| self.queued > 0) {
                    self.losses.push((place, frames));
                    self.lost += frames;
                }
            }
            Step::Take => {
                if self.moved - self.taken >= BLOCK {
                    assert_eq!(ledger.taken(BLOCK), self.taken);
                    self.taken += BLOCK;
                }
            }
            // A stream reads once it has queued something.
            Step::Read if self.queued == 0 => {}
            Step::Read => ledger.reading(self.reading(report), false),
        }
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = one_of![
        (1_u64..4).prop_map(Step::Queue),
        (1_u64..200).prop_map(Step::Move),
        (1_u64..10).prop_map(Step::Lose),
        Just(Step::Take),
        Just(Step::Read),
    ];
    vec(step, 0..60)
}

/// Runs all steps, then one more block and a reading. Returns the losses, and the ledger.
fn run(steps: &[Step], report: Report, behind: Option<u64>, ahead: u64) -> (Device, Ledger) {
    let (mut device, mut ledger) = (Device::default(), Ledger::new(Loss::Lost));
    ledger.set_behind(behind.unwrap_or(0));
    ledger.set_ahead(ahead);
    let last = [Step::Queue(1), Step::Read];
    for step in steps.iter().chain(&last) {
        device.step(*step, report, behind, ahead, &mut ledger);
    }
    (device, ledger)
}

fn behind() -> impl Strategy<Value = Option<u64>> {
    one_of![Just(None), Just(Some(0)), (1_u64..300).prop_map(Some)]
}

fn has(gap: &Gap, place: u64) -> bool {
    gap.at <= place && place <= gap.to
}

#[cfg_attr(test, test)]
pub(crate) fn every_lost_frame_is_in_one_gap_around_its_place() {
    holds(&(steps(), behind(), 0_u64..300), |(steps, behind, ahead)| {
        let ahead = if behind.is_some() { ahead } else { 0 };
        let (device, ledger) = run(&steps, Report::Count, behind, ahead);
        let gaps = ledger.gaps(device.queued + ahead, true);
        assert!(gaps.windows(2).all(|pair| pair[0].to < pair[1].at), "{gaps:?}");
        for (place, frames) in &device.losses {
            let count = gaps.iter().filter(|gap| has(gap, *place)).count();
            assert_eq!(count, 1, "{frames} frames at {place}: {gaps:?}");
        }
        for gap in &gaps {
            let within = device.losses.iter().filter(|(place, _)| has(gap, *place));
            let frames = within.map(|(_, frames)| frames).sum();
            assert_eq!(gap.frames, Some(frames), "{gap:?} of {:?}", device.losses);
        }
        assert_eq!(ledger.totals().0, device.lost);
        for bytes in [device.queued / 2, device.taken] {
            let cut = ledger.gaps(bytes, false);
            assert!(cut.iter().all(|gap| gap.at < bytes && gap.to <= bytes), "{cut:?} in {bytes}");
        }
    });
}

#[cfg_attr(test, test)]
pub(crate) fn losses_are_passed_once_and_not_after_their_place() {
    holds(&(steps(), behind()), |(steps, behind)| {
        let (device, mut ledger) = run(&steps, Report::Count, behind, 0);
        let mut passed = 0;
        for place in (0..=device.queued).step_by(BLOCK as usize) {
            let told = ledger.lost_before(place);
            let gap = ledger.pass(place);
            passed += gap.and_then(|gap| gap.frames).unwrap_or(0);
            assert_eq!(told, gap.and_then(|gap| gap.frames).unwrap_or(0));
            assert!(gap.is_none_or(|gap| gap.at <= place), "{gap:?} at {place}");
            let before = device.losses.iter().filter(|(at, _)| *at <= place);
            let before: u64 = before.map(|(_, frames)| frames).sum();
            assert!(passed >= before, "{passed} of {before} frames before {place}");
        }
        assert_eq!((passed, ledger.totals()), (device.lost, (0, 0)));
    });
}

#[cfg_attr(test, test)]
pub(crate) fn losses_without_a_count_have_a_gap_around_their_place() {
    let reports = one_of![Just(Report::Noted), Just(Report::Nothing)];
    holds(&(steps(), reports), |(steps, report)| {
        let (device, ledger) = run(&steps, report, None, 0);
        let gaps = ledger.gaps(device.queued, true);
        for (place, _) in &device.losses {
            assert!(gaps.iter().any(|gap| has(gap, *place)), "{place}: {gaps:?}");
        }
        assert!(gaps.iter().all(|gap| gap.frames.is_none()), "{gaps:?}");
        let is_known = report == Report::Nothing || gaps.is_empty() == device.losses.is_empty();
        assert!(is_known, "{gaps:?} of {:?}", device.losses);
    });
}
