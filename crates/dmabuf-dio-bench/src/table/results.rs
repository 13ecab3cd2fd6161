// SPDX-License-Identifier: MIT OR Apache-2.0
//! The results of the table.

use dmabuf_dio::Direction;
use serde::{Serialize, Serializer};

use crate::buffer::transfer::TransferMethod;
use crate::disk::IoMode;
use crate::host::facts::Facts;
use crate::measure::outcome::{Outcome, Verdict};
use crate::measure::time::{Summary, mb_per_s};
use crate::measure::turns::Samples;
use crate::table::rows::TableRow;

/// All measurements.
#[derive(Debug, Serialize)]
pub(crate) struct Table {
    pub(crate) schema: u32,
    pub(crate) bench: &'static str,
    #[serde(flatten)]
    pub(crate) facts: Facts,
    pub(crate) buffers: u64,
    pub(crate) buffer_size: u64,
    pub(crate) runs: u32,
    pub(crate) parts: Vec<DirectionRows>,
}

/// All rows in one direction.
#[derive(Debug, Serialize)]
pub(crate) struct DirectionRows {
    #[serde(serialize_with = "word")]
    pub(crate) direction: Direction,
    /// The reference row of `percent`, if any could be measured.
    pub(crate) base: Option<usize>,
    pub(crate) rows: Vec<TransferResult>,
}

/// The names of `--direction`.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde calls")]
fn word<S: Serializer>(direction: &Direction, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match direction {
        Direction::Load => "read",
        Direction::Save => "write",
    })
}

/// The measurement of one row.
#[derive(Debug, Serialize)]
pub(crate) struct TransferResult {
    pub(crate) number: usize,
    pub(crate) name: String,
    buffer: &'static str,
    mode: IoMode,
    #[serde(rename = "way")]
    method: TransferMethod,
    #[serde(flatten)]
    pub(crate) outcome: Outcome,
    #[serde(flatten)]
    pub(crate) figures: Option<TransferFigures>,
    pub(crate) notes: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct TransferFigures {
    pub(crate) create_ms: Summary,
    pub(crate) close_ms: Summary,
    pub(crate) io_ms: Summary,
    pub(crate) io_cpu_ms: Summary,
    /// Percentage of the median.
    pub(crate) io_mb_per_s: f64,
    pub(crate) percent: Option<f64>,
    /// Bytes of the file in the page cache after the I/O: the maximum of all runs.
    cached_bytes: Option<u64>,
}

/// One run of one row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TransferSample {
    pub(crate) create_ms: f64,
    pub(crate) close_ms: f64,
    pub(crate) io_ms: f64,
    pub(crate) io_cpu_ms: f64,
    pub(crate) cached_before: Option<u64>,
    pub(crate) cached_after: Option<u64>,
}

impl Table {
    pub(crate) fn total(&self) -> u64 {
        self.buffers * self.buffer_size
    }

    pub(crate) fn verdict(&self) -> Verdict {
        Verdict::of(self.parts.iter().flat_map(|part| &part.rows).map(|row| row.outcome.status))
    }
}

/// A row and its runs.
pub(crate) fn line(
    number: usize,
    row: TableRow,
    bytes: u64,
    result: &Samples<TransferSample>,
) -> TransferResult {
    let samples = result.as_deref().unwrap_or_default();
    TransferResult {
        number,
        name: row.name(),
        buffer: row.kind.name(),
        mode: row.mode,
        method: row.method,
        outcome: Outcome::of(result),
        figures: figures(bytes, samples),
        notes: notes(row, bytes, samples),
    }
}

fn figures(bytes: u64, samples: &[TransferSample]) -> Option<TransferFigures> {
    let summary = |field: fn(&TransferSample) -> f64| Summary::of(samples.iter().map(field));
    let io_ms = summary(|sample| sample.io_ms)?;
    Some(TransferFigures {
        create_ms: summary(|sample| sample.create_ms)?,
        close_ms: summary(|sample| sample.close_ms)?,
        io_cpu_ms: summary(|sample| sample.io_cpu_ms)?,
        io_mb_per_s: mb_per_s(bytes, io_ms.median),
        io_ms,
        percent: None,
        cached_bytes: samples.iter().filter_map(|sample| sample.cached_after).max(),
    })
}

/// Why a row differs from its name.
fn notes(row: TableRow, bytes: u64, samples: &[TransferSample]) -> Vec<String> {
    let most = |field: fn(&TransferSample) -> Option<u64>| samples.iter().filter_map(field).max();
    let mut notes = Vec::new();
    if most(|sample| sample.cached_before).is_some_and(|cached| cached > bytes / 20) {
        notes.push("part of the file was in the page cache before".into());
    }
    if row.mode == IoMode::Direct
        && most(|sample| sample.cached_after).is_some_and(|cached| cached > bytes / 2)
    {
        notes.push("the file system did the direct I/O through the page cache".into());
    }
    notes
}

/// Percentages refer to the first row that could be measured.
pub(crate) fn compare(direction: Direction, mut rows: Vec<TransferResult>) -> DirectionRows {
    let base = rows.iter().find_map(|row| Some((row.number, row.figures.as_ref()?.io_mb_per_s)));
    for figures in rows.iter_mut().filter_map(|row| row.figures.as_mut()) {
        figures.percent = base.map(|(_, speed)| figures.io_mb_per_s / speed * 100.0);
    }
    DirectionRows { direction, base: base.map(|(number, _)| number), rows }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::outcome::Trouble;
    use crate::table::rows::ROWS;

    const SIZE: u64 = 1 << 20;

    #[test]
    fn percentages_refer_to_the_first_row_that_ran() {
        let sample = |io_ms| TransferSample {
            create_ms: 1.0,
            close_ms: 1.0,
            io_ms,
            io_cpu_ms: 1.0,
            cached_before: None,
            cached_after: Some(SIZE),
        };
        let results: [Samples<TransferSample>; 3] = [
            Err(Trouble::short("nothing", 0, SIZE)),
            Ok(vec![sample(20.0), sample(10.0), sample(40.0)]),
            Ok(vec![sample(5.0)]),
        ];
        let lines = results.iter().zip(ROWS).enumerate();
        let lines = lines.map(|(index, (result, row))| line(index + 1, row, SIZE, result));
        let part = compare(Direction::Load, lines.collect());
        assert_eq!(part.base, Some(2));
        let percent = part.rows.iter().map(|row| row.figures.as_ref().and_then(|f| f.percent));
        assert_eq!(percent.collect::<Vec<_>>(), [None, Some(100.0), Some(400.0)]);
        assert!(part.rows.iter().all(|row| row.notes.is_empty()), "these rows are buffered");
        assert_eq!(notes(ROWS[3], SIZE, &[sample(1.0)]).len(), 1, "direct, but cached");
    }
}
