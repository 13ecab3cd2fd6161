// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was found.

use std::path::PathBuf;

use serde::Serialize;

use super::memory::Kind;
use super::rows::{By, Row, Way};
use crate::bench::clock::Unit;
use crate::bench::facts::Facts;
use crate::bench::measure::Summary;
use crate::bench::trouble::{Outcome, Trouble, Verdict};

/// All that was measured.
#[derive(Debug, Serialize)]
pub(crate) struct Small {
    pub(crate) schema: u32,
    pub(crate) bench: &'static str,
    #[serde(flatten)]
    pub(crate) facts: Facts,
    pub(crate) fio: Option<String>,
    pub(crate) runs: u32,
    /// In a run.
    pub(crate) reads: u32,
    /// Of what is read from.
    pub(crate) size: u64,
    pub(crate) unit: Unit,
    /// Whose work is in the cost.
    pub(crate) counted: &'static str,
    pub(crate) depths: Vec<u32>,
    pub(crate) lines: Vec<Line>,
}

/// A line of the table.
#[derive(Debug, Serialize)]
pub(crate) struct Line {
    pub(crate) target: String,
    pub(crate) path: PathBuf,
    pub(crate) way: Way,
    pub(crate) memory: Kind,
    pub(crate) by: By,
    /// One for each depth.
    pub(crate) points: Vec<Point>,
}

/// A line at a queue depth.
#[derive(Debug, Serialize)]
pub(crate) struct Point {
    pub(crate) depth: u32,
    #[serde(flatten)]
    pub(crate) outcome: Outcome,
    #[serde(flatten)]
    pub(crate) figures: Option<Figures>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Figures {
    pub(crate) iops: Summary,
    /// What the clock counts, per read.
    pub(crate) per_read: Summary,
}

/// One run of a point.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) iops: f64,
    pub(crate) per_read: f64,
}

impl Sample {
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

impl Line {
    pub(crate) fn of(row: &Row<'_>, points: Vec<Point>) -> Self {
        Self {
            target: row.target.name.clone(),
            path: row.target.path.clone(),
            way: row.way,
            memory: row.memory,
            by: row.by,
            points,
        }
    }
}

impl Line {
    /// Whether there is a figure at any depth.
    pub(crate) fn is_measured(&self) -> bool {
        self.points.iter().any(|point| point.figures.is_some())
    }
}

impl Point {
    pub(crate) fn of(depth: u32, result: &Result<Vec<Sample>, Trouble>) -> Self {
        let samples = result.as_deref().unwrap_or_default();
        let summary = |field: fn(&Sample) -> f64| Summary::of(samples.iter().map(field));
        let figures = summary(|sample| sample.iops)
            .zip(summary(|sample| sample.per_read))
            .map(|(iops, per_read)| Figures { iops, per_read });
        Self { depth, outcome: Outcome::of(result), figures }
    }
}
