// SPDX-License-Identifier: MIT OR Apache-2.0
//! The comparison of schemes as text.

use dmabuf_dio_cli::size::show_size;

use crate::load::{SchemeComparison, SchemeFigures, SchemesAtSize};
use crate::measure::time::{Summary, show, show_range};
use crate::report::grid::Grid;
use crate::report::page::Page;

pub(crate) fn page(comparison: &SchemeComparison) -> Page {
    let mut page = Page::default();
    page.title(format!("A file in a new buffer, runs: {}", comparison.runs));
    page.line(comparison.facts.line());
    for size in &comparison.sizes {
        page.title(show_size(size.bytes));
        match &size.reason {
            Some(reason) => page.line(format!("left out: {reason}")),
            None => page.table(grid(comparison, size)),
        }
    }
    legend(&mut page, comparison);
    page
}

fn grid(comparison: &SchemeComparison, size: &SchemesAtSize) -> Grid {
    let several = comparison.runs > 1;
    let mut head =
        vec!["scheme", "alloc-ms", "I/O-ms", "total-ms", "min-max", "hidden-ms", "speed", "CPU-ms"];
    head.retain(|name| several || *name != "min-max");
    let mut grid = Grid::new(1, &head);
    for row in &size.rows {
        match &row.figures {
            Some(figures) => {
                grid.figures([vec![row.name.clone()], cells(figures, several)].concat());
            }
            None => grid.reason(vec![row.name.clone()], row.outcome.sentence(), row.name.clone()),
        }
    }
    grid
}

fn cells(figures: &SchemeFigures, several: bool) -> Vec<String> {
    let derived = if figures.derived { "~" } else { "" };
    let median = |summary: &Option<Summary>| {
        summary
            .as_ref()
            .map_or_else(String::new, |value| format!("{derived}{}", show(value.median)))
    };
    let mut cells =
        vec![median(&figures.allocation_ms), median(&figures.io_ms), show(figures.total_ms.median)];
    if several {
        cells.push(show_range(&figures.total_ms));
    }
    cells.push(median(&figures.hidden_ms));
    cells.push(figures.percent.map_or_else(String::new, |percent| format!("{percent:.0}%")));
    cells.push(show(figures.total_cpu_ms.median));
    cells
}

fn legend(page: &mut Page, comparison: &SchemeComparison) {
    page.note(
        "normal",
        "allocate a dma-buf of the system heap, map it, read() through the page cache",
    );
    page.note("udmabuf", "create a udmabuf over a memfd, map the memfd, read()");
    page.note(
        "parallel",
        "read() into a memfd from four threads, 8 MiB at a time, while the udmabuf over it is created; \
         huge pages: each thread first makes such pages of its part (MADV_COLLAPSE), and the udmabuf \
         is created last",
    );
    let itself = match comparison.sendfile_to_dmabuf.as_deref() {
        None => String::new(),
        Some("works") => "; here it also works to a dma-buf".into(),
        Some(errno) => format!("; to a dma-buf itself: {errno}"),
    };
    page.note("sendfile", format!("sendfile() to a memfd, then create a udmabuf over it{itself}"));
    let heap = show_size(comparison.heap_gather);
    let module = comparison.module_gather.map_or_else(|| "its default".into(), show_size);
    page.note(
        "LOAD",
        format!(
            "allocate and read in one call: heap, by the heap flag; module, by /dev/dmabuf_dio. \
             Without gather all memory is allocated first; with gather reads begin as soon as \
             there is some (heap: {heap}, module: {module})",
        ),
    );
    for (word, meaning) in LEGEND {
        page.note(word, meaning);
    }
    page.note(
        "times",
        format!(
            "are only to be compared within one table: schemes take turns, caches are dropped \
             before each ({}), figures are medians",
            comparison.facts.caches_dropped_by
        ),
    );
    page.note("content", "every byte was compared after every scheme of every run");
}

const LEGEND: [(&str, &str); 5] = [
    ("buffer, direct", "through the page cache, or direct: the file is open with O_DIRECT"),
    (
        "~",
        "derived: LOAD tells only its total. I/O-ms is a second transfer into the same buffer, by \
         copy_file_range (heap) or READ (module); alloc-ms is the total without gather less that. \
         Below zero is noise: it needs more runs, or a quieter machine",
    ),
    (
        "hidden-ms",
        "alloc-ms + I/O-ms less the total with gather: time in which LOAD allocated and read at \
         once. Nothing can be hidden while the file is smaller than what gather waits for",
    ),
    ("speed", "relative to normal"),
    (
        "CPU-ms",
        "user and system time of this process during the total, without kernel threads; under \
         QEMU with -icount shift=0: millions of instructions",
    ),
];
