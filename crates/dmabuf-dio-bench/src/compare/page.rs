// SPDX-License-Identifier: MIT OR Apache-2.0
//! The comparison as text.

use dmabuf_dio_cli::size::show_size;

use super::bench::Compare;
use super::contract::PagesGot;
use super::results::{ContenderFigures, ContendersAtSize};
use crate::measure::time::{Summary, show, show_range};
use crate::report::grid::Grid;
use crate::report::page::Page;

pub(crate) fn page(compare: &Compare) -> Page {
    let mut page = Page::default();
    page.title("A file into memory");
    page.line(compare.facts.line());
    for size in &compare.sizes {
        page.title(title(compare, size));
        match &size.reason {
            Some(reason) => page.line(format!("left out: {reason}")),
            None => table(&mut page, size),
        }
    }
    legend(&mut page, compare);
    page
}

fn title(compare: &Compare, size: &ContendersAtSize) -> String {
    let bytes = show_size(size.bytes);
    match compare.processes {
        1 => format!("{bytes}, runs: {}", size.runs),
        count => format!("{count} x {bytes}, {count} processes at once, runs: {}", size.runs),
    }
}

fn table(page: &mut Page, size: &ContendersAtSize) {
    let ratio =
        if size.base.as_ref().is_some_and(|base| base.is_ceiling) { "of fio" } else { "of read" };
    let mut head = vec![
        "way",
        "ms",
        "GB/s",
        "min-max",
        ratio,
        "CPU s/GiB",
        "cache MiB",
        "release ms",
        "pages",
    ];
    let several = size.runs > 1;
    head.retain(|name| several || *name != "min-max");
    let mut grid = Grid::new(1, &head);
    for row in &size.rows {
        let name = vec![row.name.clone()];
        match &row.figures {
            Some(figures) => grid.figures([name, cells(figures, several, size.bytes)].concat()),
            None => grid.reason(name, row.outcome.sentence(), row.name.clone()),
        }
    }
    page.table(grid);
    for row in &size.rows {
        let version = row.version.iter().map(|version| format!("version {version}"));
        for note in version.chain(row.notes.iter().cloned()) {
            page.note(row.name.clone(), note);
        }
    }
}

fn cells(figures: &ContenderFigures, several: bool, bytes: u64) -> Vec<String> {
    let optional = |summary: &Option<Summary>, factor: f64| {
        summary.as_ref().map_or_else(String::new, |value| show(value.median * factor))
    };
    let mut cells = vec![show(figures.seconds.median * 1e3), show(figures.gb_per_s.median)];
    if several {
        cells.push(show_range(&figures.gb_per_s));
    }
    cells.push(figures.ratio.map_or_else(String::new, show));
    cells.push(show(figures.cpu_seconds_per_gib.median));
    cells.push(optional(&figures.cache_growth, 1.0 / f64::from(1 << 20)));
    cells.push(optional(&figures.release_seconds, 1e3));
    cells.push(figures.pages.map_or_else(String::new, |pages| show_pages(pages, bytes)));
    cells
}

/// The most frequent page size and, if not all pages are huge, the share of huge ones.
fn show_pages(pages: PagesGot, bytes: u64) -> String {
    let percent = (pages.huge_bytes as f64 / bytes as f64 * 100.0).min(100.0);
    let size = show_size(pages.page_size);
    if pages.huge_bytes == 0 || percent > 99.0 { size } else { format!("{percent:.0}% huge") }
}

fn legend(page: &mut Page, compare: &Compare) {
    let ratio = match &compare.fio {
        Some(version) => format!(
            "speed relative to the fastest {version} into huge pages, which is what the disk can \
             do; where there is none (small files, no huge pages: run as root) to read() into malloc"
        ),
        None => "speed relative to read() into malloc: fio is not installed, which would say what \
                 the disk can do (apt-get install fio)"
            .into(),
    };
    page.note("of fio, of read", ratio);
    for (word, meaning) in LEGEND {
        page.note(word, meaning);
    }
    let read_ahead = compare.found.read_ahead_kb.as_deref().unwrap_or("?");
    page.note(
        "mmap",
        format!("the file mapped, and a byte of every page read; read-ahead as found is {read_ahead} KiB"),
    );
    page.note(
        "runs",
        format!(
            "ways take turns; before each, caches are dropped ({}) and as much memory is used and \
             given back; figures are medians",
            compare.facts.caches_dropped_by
        ),
    );
    page.note(
        "content",
        format!("every byte was compared in {} of each way, except fio's", compare.verified_in),
    );
}

const LEGEND: [(&str, &str); 6] = [
    (
        "ms, GB/s",
        "from nothing but the path to all bytes in memory: opening, allocation and page faults \
         included; until the last process is done",
    ),
    ("CPU s/GiB", "user and system time of the process, all its threads, per GiB of file"),
    ("cache MiB", "bytes of the file that loading has added to the page cache"),
    ("release ms", "freeing the memory"),
    ("pages", "the page size of the memory, if known"),
    ("4 KiB", "no huge pages for shared memory, as where they are not enabled"),
];
