// SPDX-License-Identifier: MIT OR Apache-2.0
//! The results.

use serde::Serialize;

use super::rows::{Load, RateRow, RateWay};
use crate::host::facts::Facts;
use crate::measure::outcome::{Outcome, Verdict};
use crate::measure::time::Summary;
use crate::measure::turns::Samples;

/// All measurements.
#[derive(Debug, Serialize)]
pub(crate) struct Rates {
    pub(crate) schema: u32,
    pub(crate) bench: &'static str,
    #[serde(flatten)]
    pub(crate) facts: Facts,
    pub(crate) device: String,
    /// Bytes of a frame.
    pub(crate) frame: u64,
    /// Seconds of a run.
    pub(crate) seconds: u32,
    pub(crate) runs: u32,
    pub(crate) rows: Vec<RateResult>,
}

/// The measurement of a row.
#[derive(Debug, Serialize)]
pub(crate) struct RateResult {
    /// Frames per second.
    pub(crate) rate: f64,
    pub(crate) load: Load,
    pub(crate) way: RateWay,
    /// Bytes of a block; `None` if the way chooses.
    pub(crate) block: Option<u64>,
    #[serde(flatten)]
    pub(crate) outcome: Outcome,
    #[serde(flatten)]
    pub(crate) figures: Option<RateFigures>,
}

#[derive(Debug, Serialize)]
pub(crate) struct RateFigures {
    /// Frames in the file.
    pub(crate) frames: Summary,
    /// Frames that the device has numbered and that are not in the file, up to the last one in it.
    pub(crate) lost: Summary,
    /// Places at which some are missing.
    pub(crate) gaps: Summary,
    /// What the device's own counter says when it is stopped: those behind the last one in the file, too.
    pub(crate) device_lost: Summary,
    /// Frames per second that the device made.
    pub(crate) made_per_s: Summary,
}

/// One run of a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RateSample {
    pub(crate) frames: u64,
    pub(crate) lost: u64,
    pub(crate) gaps: u64,
    pub(crate) device_lost: u64,
    pub(crate) made_per_s: f64,
}

impl Rates {
    pub(crate) fn verdict(&self) -> Verdict {
        Verdict::of(self.rows.iter().map(|row| row.outcome.status))
    }
}

impl RateResult {
    pub(crate) fn of(row: RateRow, block: Option<u64>, result: &Samples<RateSample>) -> Self {
        let RateRow { rate, load, way } = row;
        let figures = figures(result.as_deref().unwrap_or_default());
        Self { rate, load, way, block, outcome: Outcome::of(result), figures }
    }
}

fn figures(samples: &[RateSample]) -> Option<RateFigures> {
    let summary = |field: fn(&RateSample) -> f64| Summary::of(samples.iter().map(field));
    Some(RateFigures {
        frames: summary(|sample| sample.frames as f64)?,
        lost: summary(|sample| sample.lost as f64)?,
        gaps: summary(|sample| sample.gaps as f64)?,
        device_lost: summary(|sample| sample.device_lost as f64)?,
        made_per_s: summary(|sample| sample.made_per_s)?,
    })
}
