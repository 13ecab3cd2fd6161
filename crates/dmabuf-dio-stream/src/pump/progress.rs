// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports of a running stream to the program.

use std::time::Instant;

use super::run::Run;
use super::summary::{Known, State};
use crate::error::Result;
use crate::wait::TICK;

impl Run<'_> {
    pub(super) fn tell(&mut self) {
        if self.stream.progress.is_none() || self.told.is_some_and(|told| told.elapsed() < TICK) {
            return;
        }
        let (lost, missed) = (self.ledger.totals(), self.output.totals());
        let remote = self.ledger.told_totals();
        let lost_frames = (lost.0 + missed.0).saturating_add(remote.0);
        let gaps = lost.1 + missed.1 + remote.1;
        let (elapsed, cpu) = self.took().unwrap_or_default();
        let state = State {
            bytes: self.bytes,
            lost_frames,
            gaps,
            full: self.stream.sink.pending().blocks,
            blocks: self.stream.ring.len(),
            elapsed,
            cpu,
        };
        self.told = Some(Instant::now());
        if let Some(callback) = &mut self.stream.progress {
            callback(state);
        }
    }

    /// Reports the known facts about the data.
    pub(super) fn record(&mut self) -> Result<()> {
        if self.stream.recorder.is_none()
            || self.recorded.is_some_and(|recorded| recorded.elapsed() < TICK)
        {
            return Ok(());
        }
        // Up to here all losses are known then.
        self.count()?;
        self.recorded = Some(Instant::now());
        let known = Known {
            bytes: self.bytes,
            gaps: self.ledger.gaps(self.bytes, false),
            loss_known: self.tells_losses(),
            begin: self.begin,
            frames: self.stream.source.frame_log(),
        };
        if let Some(recorder) = &mut self.stream.recorder {
            recorder(&known);
        }
        Ok(())
    }
}
