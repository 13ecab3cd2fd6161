// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table as text.

use dmabuf_dio_cli::size::show_size;

use super::results::{ReadFigures, ReadResult, Small};
use super::rows::IssuedBy;
use crate::measure::clock::Unit;
use crate::report::grid::{Grid, thousands};
use crate::report::page::Page;

pub(crate) fn page(small: &Small) -> Page {
    let mut page = Page::default();
    page.title(format!(
        "Random direct reads of 4 KiB from {}, {} in each of {} runs",
        show_size(small.size),
        small.reads,
        small.runs
    ));
    page.line(small.facts.line());
    let cost = match small.unit {
        Unit::Instructions => "Instructions per read",
        Unit::Nanoseconds => "CPU time per read, in nanoseconds",
    };
    let appends = small
        .append_every
        .map_or_else(String::new, |every| format!(" (4 KiB appended in {every} reads)"));
    page.title(format!("{cost}{appends}, by requests in flight"));
    page.table(grid(small, |figures| figures.per_read.median));
    // Where instructions are counted, time is what they make of it.
    if small.unit == Unit::Nanoseconds {
        page.title("Reads per second, by requests in flight");
        page.table(grid(small, |figures| figures.iops.median));
    }
    for line in small.lines.iter().filter(|line| line.is_measured()) {
        for point in line.points.iter().filter(|point| point.figures.is_none()) {
            let name = format!("{}, {}", names(line).join(", "), point.depth);
            page.note(name, point.outcome.sentence());
        }
    }
    if let Some(percent) = spread(small) {
        page.note(
            "runs",
            format!("figures are medians; runs of a point are up to {percent:.0} % apart"),
        );
    }
    page.note("counted", small.counted);
    for (word, meaning) in LEGEND {
        page.note(word, meaning);
    }
    if let Some(fio) = &small.fio {
        page.note("fio", format!("{fio}, configured to make the same requests; {FIO}"));
    }
    page
}

fn grid(small: &Small, value: impl Fn(&ReadFigures) -> f64) -> Grid {
    let depths: Vec<String> = small.depths.iter().map(ToString::to_string).collect();
    let mut head = vec!["on", "by", "memory"];
    head.extend(depths.iter().map(String::as_str));
    let mut grid = Grid::new(3, &head);
    for line in &small.lines {
        let names = names(line);
        if let Some(first) = line.points.first().filter(|_| !line.is_measured()) {
            let name = names.join(", ");
            grid.reason(names, first.outcome.sentence(), name);
            continue;
        }
        let cells = line.points.iter().map(|point| {
            let figures = point.figures.as_ref();
            figures.map_or_else(|| "-".into(), |figures| thousands(value(figures)))
        });
        grid.figures(names.into_iter().chain(cells).collect());
    }
    grid
}

/// The largest spread of the runs of a point, in per cent of their median.
fn spread(small: &Small) -> Option<f64> {
    let points = small.lines.iter().flat_map(|line| &line.points);
    let spreads = points.filter_map(|point| point.figures.as_ref()).map(|figures| {
        let what = match small.unit {
            Unit::Instructions => &figures.per_read,
            Unit::Nanoseconds => &figures.iops,
        };
        (what.max - what.min) / what.median * 100.0
    });
    spreads.reduce(f64::max)
}

fn names(line: &ReadResult) -> Vec<String> {
    let by = match line.by {
        IssuedBy::Us => line.engine.name().to_owned(),
        IssuedBy::Fio => format!("{}, fio", line.engine.name()),
    };
    vec![line.target.clone(), by, line.memory.name().to_owned()]
}

const LEGEND: [(&str, &str); 6] = [
    ("io_uring", "with a fixed file; polled: the CPU polls for completions, without interrupts"),
    ("user", "memory of the process, pinned for each read"),
    ("registered", "memory of the process, pinned once"),
    ("lent", "pages of a dma-buf, lent to io_uring by the kernel module"),
    ("gather", "the library's call for many pieces: all reads in one call, each to its own place"),
    ("content", "every byte was compared in an uncounted run of each line except fio's"),
];

const FIO: &str = "the figure includes its own work";
