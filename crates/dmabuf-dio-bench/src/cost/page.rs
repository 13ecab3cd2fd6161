// SPDX-License-Identifier: MIT OR Apache-2.0
//! The costs as text.

use dmabuf_dio_cli::size::show_size;

use super::results::{Cost, CostFigures, CostsAtSize, Per};
use crate::measure::clock::Unit;
use crate::measure::time::Summary;
use crate::report::grid::{Grid, thousands};
use crate::report::page::Page;

pub(crate) fn page(cost: &Cost) -> Page {
    let mut page = Page::default();
    let unit = match cost.unit {
        Unit::Instructions => "instructions",
        Unit::Nanoseconds => "nanoseconds of the CPU",
    };
    page.title(format!("What a file in a buffer costs: {unit}, runs: {}", cost.runs));
    page.line(cost.facts.line());
    for size in &cost.sizes {
        let per = match size.per {
            Per::MiB => "MiB",
            Per::Transfer => "transfer",
        };
        page.title(format!("{}: {unit} per {per}", show_size(size.bytes)));
        match &size.reason {
            Some(reason) => page.line(format!("left out: {reason}")),
            None => page.table(grid(size)),
        }
    }
    page.note("counted", cost.counted);
    for (word, meaning) in LEGEND {
        page.note(word, meaning);
    }
    page
}

fn grid(size: &CostsAtSize) -> Grid {
    let head = ["way", "allocation", "I/O", "close", "total", "spread", "copied", "zeroed"];
    let mut grid = Grid::new(1, &head);
    for case in &size.cases {
        let name = case.name.clone();
        match &case.figures {
            Some(figures) => {
                let moved = [case.copied, case.zeroed].map(|bytes| format!("{bytes:.0}"));
                grid.figures([vec![name], cells(figures), moved.to_vec()].concat());
            }
            None => grid.reason(vec![name.clone()], case.outcome.sentence(), name),
        }
    }
    grid
}

fn cells(figures: &CostFigures) -> Vec<String> {
    let median = |summary: &Option<Summary>| {
        summary.as_ref().map_or_else(String::new, |summary| thousands(summary.median))
    };
    let (allocation, io) = match &figures.load {
        Some(_) => ("+".into(), median(&figures.load)),
        None => (median(&figures.allocation), median(&figures.io)),
    };
    let total = &figures.total;
    vec![
        allocation,
        io,
        median(&figures.close),
        thousands(total.median),
        format!("{:.1}%", (total.max - total.min) / total.median * 100.0),
    ]
}

const LEGEND: [(&str, &str); 7] = [
    (
        "allocation",
        "whatever is needed before a byte can be moved: with mapping, page faults in \
      advance, attaching and registering",
    ),
    ("+", "allocated by the call that reads"),
    (
        "close",
        "unregistering, unmapping and closing, until all is free again and nothing goes on \
      in the background",
    ),
    ("total", "median over the runs; spread: maximum minus minimum, in per cent of the median"),
    (
        "copied, zeroed",
        "bytes by the CPU per byte of the file; a kernel booted with \
      init_on_alloc=1, Debian's for one, zeroes what it allocates once more",
    ),
    ("library", "all of dmabuf_dio::Loader, and freeing the result"),
    ("content", "every byte was compared in an uncounted run of each way at each size"),
];
