// SPDX-License-Identifier: MIT OR Apache-2.0
//! The results.

use std::path::PathBuf;

use serde::Serialize;

use super::memory::MemoryKind;
use super::rows::{EngineKind, IssuedBy, ReadRow};
use crate::host::facts::Facts;
use crate::measure::clock::Unit;
use crate::measure::outcome::{Outcome, Verdict};
use crate::measure::time::Summary;
use crate::measure::turns::Samples;

/// All measurements.
#[derive(Debug, Serialize)]
pub(crate) struct Small {
    pub(crate) schema: u32,
    pub(crate) bench: &'static str,
    #[serde(flatten)]
    pub(crate) facts: Facts,
    pub(crate) fio: Option<String>,
    pub(crate) runs: u32,
    /// Reads in a run.
    pub(crate) reads: u32,
    /// Bytes of the target that are read from.
    pub(crate) size: u64,
    /// Reads per block that is appended to the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) append_every: Option<u32>,
    pub(crate) unit: Unit,
    /// Whose work the cost includes.
    pub(crate) counted: &'static str,
    pub(crate) depths: Vec<u32>,
    pub(crate) lines: Vec<ReadResult>,
}

/// A line of the table.
#[derive(Debug, Serialize)]
pub(crate) struct ReadResult {
    pub(crate) target: String,
    pub(crate) path: PathBuf,
    #[serde(rename = "way")]
    pub(crate) engine: EngineKind,
    pub(crate) memory: MemoryKind,
    pub(crate) by: IssuedBy,
    /// One for each queue depth.
    pub(crate) points: Vec<Point>,
}

/// A line at a queue depth.
#[derive(Debug, Serialize)]
pub(crate) struct Point {
    pub(crate) depth: u32,
    #[serde(flatten)]
    pub(crate) outcome: Outcome,
    #[serde(flatten)]
    pub(crate) figures: Option<ReadFigures>,
}

#[derive(Debug, Serialize)]
pub(crate) struct ReadFigures {
    pub(crate) iops: Summary,
    /// The clock's count per read.
    pub(crate) per_read: Summary,
}

/// One run of a point.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadSample {
    pub(crate) iops: f64,
    pub(crate) per_read: f64,
}

impl ReadSample {
    pub(crate) fn of(reads: u64, wall_ms: f64, busy: f64) -> Self {
        Self { iops: reads as f64 * 1e3 / wall_ms, per_read: busy / reads as f64 }
    }
}

impl Small {
    pub(crate) fn verdict(&self) -> Verdict {
        let points = self.lines.iter().flat_map(|line| &line.points);
        Verdict::of(points.map(|point| point.outcome.status))
    }
}

impl ReadResult {
    pub(crate) fn of(row: &ReadRow<'_>, points: Vec<Point>) -> Self {
        Self {
            target: row.target.name.clone(),
            path: row.target.path.clone(),
            engine: row.engine,
            memory: row.memory,
            by: row.by,
            points,
        }
    }
}

impl ReadResult {
    /// Whether there is a figure for any queue depth.
    pub(crate) fn is_measured(&self) -> bool {
        self.points.iter().any(|point| point.figures.is_some())
    }
}

impl Point {
    pub(crate) fn of(depth: u32, result: &Samples<ReadSample>) -> Self {
        let samples = result.as_deref().unwrap_or_default();
        let summary = |field: fn(&ReadSample) -> f64| Summary::of(samples.iter().map(field));
        let figures = summary(|sample| sample.iops)
            .zip(summary(|sample| sample.per_read))
            .map(|(iops, per_read)| ReadFigures { iops, per_read });
        Self { depth, outcome: Outcome::of(result), figures }
    }
}
