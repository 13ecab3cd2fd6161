// SPDX-License-Identifier: MIT OR Apache-2.0
//! The results.

use serde::Serialize;

use super::rows::{Destination, StreamMethod, StreamRow};
use crate::host::facts::Facts;
use crate::measure::clock::Unit;
use crate::measure::outcome::{Outcome, Verdict};
use crate::measure::time::Summary;
use crate::measure::turns::Samples;

/// All measurements.
#[derive(Debug, Serialize)]
pub(crate) struct Streams {
    pub(crate) schema: u32,
    pub(crate) bench: &'static str,
    #[serde(flatten)]
    pub(crate) facts: Facts,
    pub(crate) device: String,
    pub(crate) runs: u32,
    /// Bytes in a run.
    pub(crate) total: u64,
    pub(crate) unit: Unit,
    /// Whose work the cost includes.
    pub(crate) counted: &'static str,
    pub(crate) rows: Vec<StreamResult>,
}

/// The measurement of a row.
#[derive(Debug, Serialize)]
pub(crate) struct StreamResult {
    pub(crate) to: Destination,
    #[serde(rename = "way")]
    pub(crate) method: StreamMethod,
    pub(crate) block: u64,
    #[serde(flatten)]
    pub(crate) outcome: Outcome,
    #[serde(flatten)]
    pub(crate) figures: Option<StreamFigures>,
}

#[derive(Debug, Serialize)]
pub(crate) struct StreamFigures {
    pub(crate) mib_per_s: Summary,
    /// CPU time of the process, as a share of one CPU.
    pub(crate) cpu_percent: Summary,
    /// The clock's count per MiB of samples.
    pub(crate) per_mib: Summary,
}

/// One run of a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamSample {
    pub(crate) mib_per_s: f64,
    pub(crate) cpu_percent: f64,
    pub(crate) per_mib: f64,
}

impl Streams {
    pub(crate) fn verdict(&self) -> Verdict {
        Verdict::of(self.rows.iter().map(|row| row.outcome.status))
    }
}

impl StreamResult {
    pub(crate) fn of(row: StreamRow, result: &Samples<StreamSample>) -> Self {
        let StreamRow { to, method, block } = row;
        let samples = result.as_deref().unwrap_or_default();
        Self { to, method, block, outcome: Outcome::of(result), figures: figures(samples) }
    }
}

fn figures(samples: &[StreamSample]) -> Option<StreamFigures> {
    let summary = |field: fn(&StreamSample) -> f64| Summary::of(samples.iter().map(field));
    Some(StreamFigures {
        mib_per_s: summary(|sample| sample.mib_per_s)?,
        cpu_percent: summary(|sample| sample.cpu_percent)?,
        per_mib: summary(|sample| sample.per_mib)?,
    })
}
