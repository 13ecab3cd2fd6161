// SPDX-License-Identifier: MIT OR Apache-2.0
//! When a stream ends: after its bytes, or after its time.

use std::time::Duration;

use super::run::Run;
use crate::error::Result;
use crate::gaps::Reading;
use crate::ring::Filled;

/// How much longer than its nominal time a device that does not report losses may take. If it takes
/// longer, it does not run at its rate.
const SLACK: Duration = Duration::from_secs(10);

impl Run<'_> {
    pub(super) fn all_asked_for(&self) -> bool {
        self.left() == 0
    }

    /// Bytes that are still to be requested from the source.
    pub(super) fn left(&self) -> u64 {
        let left = self.limit.map_or(u64::MAX, |limit| limit.saturating_sub(self.asked));
        let Some(span) = self.span else { return left };
        let lost = self.ledger.totals().0.saturating_add(self.output.totals().0);
        left.min(span.saturating_sub(self.asked).saturating_sub(lost.saturating_mul(self.frame)))
    }

    /// Whether the clock ends the stream. If the device does not count losses, it does so as soon as
    /// the time is over.
    pub(super) fn is_late(&mut self) -> Result<bool> {
        let (Some(time), Some((begun, _))) = (self.stream.time, self.begun) else {
            return Ok(false);
        };
        let elapsed = begun.elapsed();
        if elapsed < time.seconds {
            return Ok(false);
        }
        let by_clock = self.span.is_none()
            || self.ledger.is_uncounted()
            || self.output.is_uncounted()
            || matches!(self.count()?, (Reading::Noted(_) | Reading::Nothing, true));
        self.over |= by_clock;
        Ok(by_clock || elapsed >= time.seconds.saturating_add(SLACK))
    }

    /// The part of a full block that is within the device's time, if any.
    pub(super) fn in_time(&mut self, start: u64, filled: Filled) -> Option<Filled> {
        let Some(span) = self.span else { return Some(filled) };
        let lost = self.ledger.lost_before(start).saturating_add(self.output.totals().0);
        let left = span.saturating_sub(start).saturating_sub(lost.saturating_mul(self.frame));
        self.over |= left <= filled.bytes;
        (left > 0).then(|| Filled { bytes: filled.bytes.min(left), ..filled })
    }
}
