// SPDX-License-Identifier: MIT OR Apache-2.0
//! The comparison as text.

use dmabuf_dio_cli::size::show_size;

use super::results::{StreamResult, Streams};
use super::rows::Destination;
use crate::measure::clock::Unit;
use crate::measure::time::{show, show_range};
use crate::report::grid::{Grid, thousands};
use crate::report::page::Page;

pub(crate) fn page(streams: &Streams) -> Page {
    let mut page = Page::default();
    page.title(format!(
        "Samples of {}, {} in each of {} runs",
        streams.device,
        show_size(streams.total),
        streams.runs
    ));
    page.line(streams.facts.line());
    let unit = match streams.unit {
        Unit::Instructions => "instructions/MiB",
        Unit::Nanoseconds => "CPU ns/MiB",
    };
    for (to, title) in [
        (Destination::Nothing, "Into nothing"),
        (Destination::File, "Into a file"),
        (Destination::Usb, "Into USB"),
    ] {
        let rows: Vec<_> = streams.rows.iter().filter(|row| row.to == to).collect();
        if !rows.is_empty() {
            page.title(title);
            page.table(grid(unit, rows.into_iter()));
        }
    }
    page.note("counted", streams.counted);
    for (word, meaning) in LEGEND {
        page.note(word, meaning);
    }
    page
}

fn grid<'a>(unit: &str, rows: impl Iterator<Item = &'a StreamResult>) -> Grid {
    let mut grid = Grid::new(2, &["blocks", "way", "MiB/s", "min-max", "CPU", unit]);
    for row in rows {
        let names = vec![show_size(row.block), row.method.name().to_owned()];
        let Some(figures) = &row.figures else {
            let name = names.join(", ");
            grid.reason(names, row.outcome.sentence(), name);
            continue;
        };
        let cells = [
            show(figures.mib_per_s.median),
            show_range(&figures.mib_per_s),
            format!("{:.0} %", figures.cpu_percent.median),
            thousands(figures.per_mib.median),
        ];
        grid.figures([names, cells.to_vec()].concat());
    }
    grid
}

const LEGEND: [(&str, &str); 7] = [
    ("read()", "of a block, then write() of it; for a file, including fsync()"),
    ("O_DIRECT", "the file is open with O_DIRECT"),
    ("dma-buf", "a ring of 4 to 256 blocks; the file is written with O_DIRECT, including fsync()"),
    (
        "iio_rwdev",
        "libiio's: four dma-bufs, then write(); without its start, for a file including fsync()",
    ),
    ("CPU", "CPU time of the process as a share of one CPU, without that of a simulated device"),
    (
        "device",
        "delivers samples as fast as blocks are queued, and writes only the first of each block",
    ),
    ("content", "every sample was compared in an uncounted run of each row"),
];
