// SPDX-License-Identifier: MIT OR Apache-2.0
//! The results.

use serde::Serialize;

use super::cases::CostCase;
use super::meter::PhaseCosts;
use crate::host::facts::Facts;
use crate::measure::clock::Unit;
use crate::measure::outcome::{Outcome, Verdict};
use crate::measure::phase::Phase;
use crate::measure::time::Summary;
use crate::measure::turns::Samples;

/// All measurements.
#[derive(Debug, Serialize)]
pub(crate) struct Cost {
    pub(crate) schema: u32,
    pub(crate) bench: &'static str,
    #[serde(flatten)]
    pub(crate) facts: Facts,
    pub(crate) runs: u32,
    pub(crate) unit: Unit,
    /// Whose work the figures include.
    pub(crate) counted: &'static str,
    pub(crate) sizes: Vec<CostsAtSize>,
}

/// The unit of the figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Per {
    MiB,
    /// One transfer of the whole size.
    #[serde(rename = "transfer")]
    Transfer,
}

/// All cases at one size.
#[derive(Debug, Serialize)]
pub(crate) struct CostsAtSize {
    pub(crate) bytes: u64,
    pub(crate) per: Per,
    /// Why this size was skipped.
    pub(crate) reason: Option<String>,
    #[serde(rename = "ways")]
    pub(crate) cases: Vec<CostResult>,
}

/// The measurement of one case.
#[derive(Debug, Serialize)]
pub(crate) struct CostResult {
    pub(crate) name: String,
    /// Bytes that the CPU copies, per byte of the file.
    pub(crate) copied: f64,
    pub(crate) zeroed: f64,
    #[serde(flatten)]
    pub(crate) outcome: Outcome,
    #[serde(flatten)]
    pub(crate) figures: Option<CostFigures>,
}

#[derive(Debug, Serialize)]
pub(crate) struct CostFigures {
    pub(crate) allocation: Option<Summary>,
    pub(crate) io: Option<Summary>,
    /// Allocation and I/O, if they are one call.
    pub(crate) load: Option<Summary>,
    pub(crate) close: Option<Summary>,
    pub(crate) total: Summary,
}

impl Cost {
    pub(crate) fn verdict(&self) -> Verdict {
        Verdict::of(self.sizes.iter().flat_map(|size| &size.cases).map(|case| case.outcome.status))
    }
}

impl Per {
    const MIB: u64 = 1 << 20;

    pub(crate) fn of(bytes: u64) -> Self {
        if bytes < Self::MIB { Self::Transfer } else { Self::MiB }
    }

    /// The divisor for a transfer's cost.
    pub(crate) fn count(self, bytes: u64) -> f64 {
        match self {
            Self::MiB => bytes as f64 / Self::MIB as f64,
            Self::Transfer => 1.0,
        }
    }
}

impl CostsAtSize {
    pub(crate) fn left_out(bytes: u64, reason: String) -> Self {
        Self { bytes, per: Per::of(bytes), reason: Some(reason), cases: Vec::new() }
    }
}

pub(crate) fn line(case: &CostCase, result: &Samples<PhaseCosts>) -> CostResult {
    CostResult {
        name: case.name.clone(),
        copied: case.copied,
        zeroed: case.zeroed,
        outcome: Outcome::of(result),
        figures: result.as_deref().ok().and_then(figures),
    }
}

fn figures(samples: &[PhaseCosts]) -> Option<CostFigures> {
    let tenths = |value: f64| (value * 10.0).round() / 10.0;
    let phase = |phase| Summary::of(samples.iter().filter_map(|spent| spent.of(phase)).map(tenths));
    Some(CostFigures {
        allocation: phase(Phase::Allocation),
        io: phase(Phase::Io),
        load: phase(Phase::Load),
        close: phase(Phase::Close),
        total: Summary::of(samples.iter().map(PhaseCosts::total).map(tenths))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_transfer_counts_as_one_unit() {
        let counts = [4096, 1 << 20, 8 << 20].map(|bytes| Per::of(bytes).count(bytes) as u64);
        assert_eq!(counts, [1, 1, 8]);
    }
}
