// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table as text.

use dmabuf_dio::Direction;
use dmabuf_dio_cli::size::show_size;

use crate::measure::time::{show, show_range};
use crate::report::grid::Grid;
use crate::report::page::Page;
use crate::table::results::{DirectionRows, Table, TransferFigures};

pub(crate) fn page(table: &Table) -> Page {
    let mut page = Page::default();
    for part in &table.parts {
        page.title(title(table, part.direction));
        page.line(table.facts.line());
        page.table(grid(table, part));
        for row in &part.rows {
            for note in &row.notes {
                page.note(format!("row {}", row.number), note.clone());
            }
        }
        if let Some(base) = part.base.filter(|base| *base != 1) {
            page.note("I/O%", format!("of row {base}: row 1 could not be measured"));
        }
    }
    legend(&mut page, table);
    page
}

fn title(table: &Table, direction: Direction) -> String {
    let moved = match direction {
        Direction::Load => "read from a file into buffers",
        Direction::Save => "written from buffers to a file",
    };
    let (count, size) = (table.buffers, show_size(table.buffer_size));
    format!("{count} x {size} = {} {moved}, runs: {}", show_size(table.total()), table.runs)
}

fn grid(table: &Table, part: &DirectionRows) -> Grid {
    let several = table.runs > 1;
    let mut head = vec![
        "#",
        "row",
        "create-ms",
        "close-ms",
        "I/O-ms",
        "min-max",
        "I/O-MB/s",
        "I/O%",
        "CPU-ms",
    ];
    head.retain(|name| several || *name != "min-max");
    let mut grid = Grid::new(2, &head);
    for row in &part.rows {
        let names = vec![row.number.to_string(), row.name.clone()];
        match &row.figures {
            Some(figures) => grid.figures([names, cells(figures, several)].concat()),
            None => grid.reason(names, row.outcome.sentence(), format!("row {}", row.number)),
        }
    }
    grid
}

fn cells(figures: &TransferFigures, several: bool) -> Vec<String> {
    let mut cells = vec![
        show(figures.create_ms.median),
        show(figures.close_ms.median),
        show(figures.io_ms.median),
    ];
    if several {
        cells.push(show_range(&figures.io_ms));
    }
    cells.push(format!("{:.0}", figures.io_mb_per_s));
    cells.push(figures.percent.map_or_else(String::new, |percent| format!("{percent:.0}%")));
    cells.push(show(figures.io_cpu_ms.median));
    cells
}

fn legend(page: &mut Page, table: &Table) {
    for (word, meaning) in ROWS {
        page.note(word, meaning);
    }
    page.note("create-ms, close-ms", "creating all buffers; unmapping and closing them");
    let mut io = "transferring all bytes; for R/W, with mapping and DMA_BUF_IOCTL_SYNC".to_owned();
    if table.parts.iter().any(|part| part.direction == Direction::Save) {
        io += "; when writing, to a file with allocated blocks, with fdatasync() at the end";
    }
    page.note("I/O-ms", io);
    page.note("I/O-MB/s, I/O%", "millions of bytes per second; that speed relative to row 1");
    page.note(
        "CPU-ms",
        "user and system time of this process during the I/O, without kernel threads; under QEMU \
         with -icount shift=0: millions of instructions",
    );
    page.note(
        "times",
        format!(
            "are only to be compared within one table: rows take turns, caches are dropped before \
             each ({}), figures are medians",
            table.facts.caches_dropped_by
        ),
    );
    page.note("content", "every byte was compared after every row of every run");
}

/// The words that form the names of rows.
const ROWS: [(&str, &str); 7] = [
    ("dmabuf", "a dma-buf of the system heap"),
    ("udmabuf", "a dma-buf over a memfd"),
    ("memfd", "shared memory without pages: the I/O includes their allocation"),
    ("u+memfd", "a udmabuf and its memfd: the I/O uses the memfd, whose pages are allocated"),
    ("buffer, direct", "through the page cache, or direct: the file is open with O_DIRECT"),
    ("R/W", "read() or write() on a mapping of the buffer"),
    ("c_f_r", "copy_file_range()"),
];
