// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was found.

use serde::Serialize;

use super::rows::{Row, To, Way};
use crate::bench::clock::Unit;
use crate::bench::facts::Facts;
use crate::bench::measure::Summary;
use crate::bench::trouble::{Outcome, Trouble, Verdict};

/// All that was measured.
#[derive(Debug, Serialize)]
pub(crate) struct Streams {
    pub(crate) schema: u32,
    pub(crate) bench: &'static str,
    #[serde(flatten)]
    pub(crate) facts: Facts,
    pub(crate) device: String,
    pub(crate) runs: u32,
    /// Bytes of a run.
    pub(crate) total: u64,
    pub(crate) unit: Unit,
    /// Whose work is in the cost.
    pub(crate) counted: &'static str,
    pub(crate) rows: Vec<Line>,
}

/// A row, measured.
#[derive(Debug, Serialize)]
pub(crate) struct Line {
    pub(crate) to: To,
    pub(crate) way: Way,
    pub(crate) block: u64,
    #[serde(flatten)]
    pub(crate) outcome: Outcome,
    #[serde(flatten)]
    pub(crate) figures: Option<Figures>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Figures {
    pub(crate) mib_per_s: Summary,
    /// CPU time of the process, of one CPU's.
    pub(crate) cpu_percent: Summary,
    /// What the clock counts, per MiB of samples.
    pub(crate) per_mib: Summary,
}

/// One run of a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) mib_per_s: f64,
    pub(crate) cpu_percent: f64,
    pub(crate) per_mib: f64,
}

impl Streams {
    pub(crate) fn verdict(&self) -> Verdict {
        Verdict::of(self.rows.iter().map(|row| row.outcome.status))
    }
}

impl Line {
    pub(crate) fn of(row: Row, result: &Result<Vec<Sample>, Trouble>) -> Self {
        let Row { to, way, block } = row;
        let samples = result.as_deref().unwrap_or_default();
        Self { to, way, block, outcome: Outcome::of(result), figures: figures(samples) }
    }
}

fn figures(samples: &[Sample]) -> Option<Figures> {
    let summary = |field: fn(&Sample) -> f64| Summary::of(samples.iter().map(field));
    Some(Figures {
        mib_per_s: summary(|sample| sample.mib_per_s)?,
        cpu_percent: summary(|sample| sample.cpu_percent)?,
        per_mib: summary(|sample| sample.per_mib)?,
    })
}
