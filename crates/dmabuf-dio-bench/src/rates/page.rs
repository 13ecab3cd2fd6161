// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table as text.

use super::results::{RateFigures, RateResult, Rates};
use super::rows::Load;
use crate::measure::time::show;
use crate::report::grid::{Grid, thousands};
use crate::report::page::Page;

pub(crate) fn page(rates: &Rates) -> Page {
    let mut page = Page::default();
    let runs = if rates.runs == 1 { "1 run".to_owned() } else { format!("{} runs", rates.runs) };
    page.title(format!(
        "Frames of {} lost on the way into a file, {} s each, {runs}",
        rates.device, rates.seconds
    ));
    page.line(rates.facts.line());
    for (load, title) in [(Load::Idle, "Idle machine"), (Load::Busy, "A busy thread for each CPU")]
    {
        let rows: Vec<&RateResult> = rates.rows.iter().filter(|row| row.load == load).collect();
        if !rows.is_empty() {
            page.title(title);
            page.table(grid(rates, &rows));
        }
    }
    for row in rates.rows.iter().filter(|row| row.figures.is_none()) {
        let name = format!("{} at {}", row.way.name(), thousands(row.rate));
        page.note(name, row.outcome.sentence());
    }
    for (word, meaning) in LEGEND {
        page.note(word, meaning);
    }
    page
}

fn grid(rates: &Rates, rows: &[&RateResult]) -> Grid {
    let mut ways = Vec::new();
    for row in rows {
        if !ways.contains(&row.way) {
            ways.push(row.way);
        }
    }
    let mut head = vec!["frames/s", "MB/s"];
    head.extend(ways.iter().map(|way| way.name()));
    head.push("made");
    let mut grid = Grid::new(0, &head);
    for rate in &rates.rates() {
        let of_rate = || rows.iter().filter(|row| row.rate.total_cmp(rate).is_eq());
        let mut cells = vec![thousands(*rate), show(rate * rates.frame as f64 / 1e6)];
        for way in &ways {
            let row = of_rate().find(|row| row.way == *way);
            cells.push(row.and_then(|row| row.figures.as_ref()).map_or_else(|| "-".into(), lost));
        }
        let made = of_rate().filter_map(|row| Some(row.figures.as_ref()?.made_per_s.min));
        let least = made.fold(f64::INFINITY, f64::min);
        cells.push(if least.is_finite() {
            format!("{:.0} %", least / rate * 100.0)
        } else {
            "-".into()
        });
        grid.figures(cells);
    }
    grid
}

impl Rates {
    /// In the order of the rows.
    fn rates(&self) -> Vec<f64> {
        let mut rates: Vec<f64> = Vec::new();
        for row in &self.rows {
            if !rates.iter().any(|rate| rate.total_cmp(&row.rate).is_eq()) {
                rates.push(row.rate);
            }
        }
        rates
    }
}

/// Lost frames, and their share.
fn lost(figures: &RateFigures) -> String {
    let (lost, all) = (figures.lost.median, figures.lost.median + figures.frames.median);
    let percent = lost / all * 100.0;
    match () {
        () if lost <= 0.0 => "0".into(),
        () if percent < 0.01 => format!("{} (<0.01 %)", thousands(lost)),
        () => format!("{} ({percent:.2} %)", thousands(lost)),
    }
}

const LEGEND: [(&str, &str); 6] = [
    (
        "lost",
        "frames that the device has numbered and that are not in the file, up to its last one",
    ),
    ("dmabuf-dio", "dmabuf-dio capture with its defaults"),
    ("read()", "read() of a block, then write() of it: 1/8 s, at most 4 MiB"),
    ("iio_rwdev", "libiio's, with its defaults: four blocks of 256 frames"),
    ("iio_rwdev -b", "the same with the blocks of read()"),
    (
        "made",
        "frames that the device made, of those due: with less than 100 % it was too slow itself in the slowest run",
    ),
];
