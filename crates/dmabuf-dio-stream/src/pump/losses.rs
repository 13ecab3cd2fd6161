// SPDX-License-Identifier: MIT OR Apache-2.0
//! The losses of a running stream.

use std::time::Instant;

use dmabuf_dio::Errno;

use super::run::Run;
use super::stream::Overrun;
use crate::ends::reading;
use crate::error::{Result, failed};
use crate::gaps::{Gap, Reading};

impl Run<'_> {
    /// Reads how much the source has lost so far.
    pub(super) fn count(&mut self) -> Result<(Reading, bool)> {
        let reading = reading(self.stream.source.live())?;
        self.ledger.reading(reading, self.all_asked_for());
        self.counted = Instant::now();
        if self.stream.overrun == Overrun::Fail && self.ledger.totals().1 > 0 && !self.overflowed {
            self.overflowed = true;
            return Err(failed("the sink", "keep up with the source", Errno::OVERFLOW));
        }
        Ok(reading)
    }

    /// Reads how many frames the sink has lacked so far. `last`: it gets no more blocks.
    pub(super) fn count_output(&mut self, last: bool) -> Result<()> {
        self.output.reading(reading(self.stream.sink.live())?, last);
        self.counted = Instant::now();
        Ok(())
    }

    /// Copies the gaps that a video device reports.
    pub(super) fn set_told(&mut self) {
        if let Some(log) = self.stream.source.frame_log() {
            self.ledger.set_told(log.gaps());
        }
    }

    pub(super) fn tells_losses(&self) -> bool {
        self.stream.source.facts().tells_losses && self.stream.sink.facts().tells_losses
    }

    pub(super) fn gaps(&self) -> Vec<Gap> {
        let mut gaps =
            self.ledger.gaps(self.bytes, self.overflowed || self.span.is_some() && self.over);
        gaps.extend(self.output.gaps(self.bytes, false));
        gaps.sort_by_key(|gap| (gap.at, gap.to));
        self.trim(&mut gaps);
        gaps
    }

    /// Removes losses after the end of the device's time from the last gap.
    fn trim(&self, gaps: &mut Vec<Gap>) {
        let Some(span) = self.span.filter(|_| self.ledger.told_totals().1 == 0) else { return };
        let lost: u64 = gaps.iter().filter_map(|gap| gap.frames).sum();
        let beyond = (self.bytes / self.frame + lost).saturating_sub(span / self.frame);
        let Some(last) = gaps.last_mut() else { return };
        last.frames = last.frames.map(|frames| frames.saturating_sub(beyond));
        if last.frames == Some(0) {
            gaps.pop();
        }
    }
}
