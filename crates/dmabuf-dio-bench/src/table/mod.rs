// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures the table.

pub(crate) mod args;
mod page;
mod results;
mod rows;

use dmabuf_dio::Direction;
use dmabuf_dio_cli::exit::Failure;

use crate::buffer::transfer::Mover;
use crate::buffer::{Buffer, Maker, touch_memory};
use crate::disk::{Caches, DiskFile};
use crate::host::facts::{self, Facts};
use crate::measure::outcome::Trouble;
use crate::measure::time::Start;
use crate::measure::turns::take_turns;
use crate::pattern::Pattern;
use args::TableArgs;
pub(crate) use page::page;
pub(crate) use results::Table;
use results::{DirectionRows, TransferSample, compare, line};
use rows::{ROWS, TableRow};

impl Table {
    pub(crate) fn measure(args: &TableArgs) -> Result<Self, Failure> {
        let total = args.buffers.saturating_mul(args.size);
        facts::ensure_memory(total)?;
        let disk = DiskFile::create(&args.common.dir, total)?;
        let content = Pattern::new(0);
        disk.write(&content)?;
        touch_memory(total);
        let mut bench = TableBench::new(args, disk, content);
        let parts = args.direction.each().iter().map(|direction| bench.part(*direction));
        let parts = parts.collect::<Result<_, _>>()?;
        Ok(Self {
            schema: 1,
            bench: "table",
            facts: Facts::gather(&bench.disk, &args.common),
            buffers: args.buffers,
            buffer_size: args.size,
            runs: args.runs,
            parts,
        })
    }
}

struct TableBench<'a> {
    args: &'a TableArgs,
    disk: DiskFile,
    /// Content of the file while it is read.
    content: Pattern,
    /// The number of the next pattern to write.
    next: u64,
    caches: Caches,
}

impl<'a> TableBench<'a> {
    fn new(args: &'a TableArgs, disk: DiskFile, content: Pattern) -> Self {
        Self { args, disk, content, next: 1, caches: Caches::new(args.common.keep_caches) }
    }

    fn part(&mut self, direction: Direction) -> Result<DirectionRows, Failure> {
        let TableArgs { buffers, runs, .. } = *self.args;
        let name = |row: &TableRow| format!("{}, {}", direction, row.name());
        // Run 0 is of one buffer.
        let count = |run| if run == 0 { 1 } else { buffers };
        let run = |row: &TableRow, run| self.sample(*row, direction, count(run)).map(Some);
        let results = take_turns(&ROWS, 0..=runs, name, run)?;
        let rows = ROWS.into_iter().zip(&results).enumerate();
        let rows = rows.map(|(index, (row, result))| line(index + 1, row, self.disk.len(), result));
        Ok(compare(direction, rows.collect()))
    }

    /// Creates a number of buffers, transfers, compares, overwrites and closes them.
    fn sample(
        &mut self,
        row: TableRow,
        direction: Direction,
        count: u64,
    ) -> Result<TransferSample, Trouble> {
        let size = self.args.size;
        let maker = Maker::new(row.kind)?;
        let mover = Mover::new(row.method, direction)?;
        let file = self.disk.open(row.mode)?;
        let pattern = match direction {
            Direction::Load => self.content,
            Direction::Save => Pattern::new(self.next),
        };
        self.next += 1;
        self.caches.drop(&self.disk);

        let start = Start::now();
        let buffers: Vec<Buffer> =
            (0..count).map(|_| maker.make(size)).collect::<Result<_, _>>()?;
        let create = start.took();
        self.prepare(row, direction, pattern, &buffers)?;

        let cached_before = self.disk.cached();
        let start = Start::now();
        let mappings = mover.run(file, row.kind, &buffers)?;
        let io = start.took();
        let cached_after = self.disk.cached();

        self.verify(direction, pattern, &buffers)?;
        for buffer in &buffers {
            buffer.poison()?;
        }
        let start = Start::now();
        drop(mappings);
        drop(buffers);
        let close = start.took();
        Ok(TransferSample {
            create_ms: create.wall_ms,
            close_ms: close.wall_ms,
            io_ms: io.wall_ms,
            io_cpu_ms: io.cpu_ms(),
            cached_before,
            cached_after,
        })
    }

    /// Before reading, fills the buffers with wrong data; before writing, with the data to write.
    fn prepare(
        &self,
        row: TableRow,
        direction: Direction,
        pattern: Pattern,
        buffers: &[Buffer],
    ) -> Result<(), Trouble> {
        for (buffer, at) in buffers.iter().zip(self.places()) {
            match direction {
                Direction::Save => buffer.fill(pattern, at)?,
                // A new memfd has no pages, and to allocate them is part of its I/O. It is zero,
                // and no word of the content is.
                Direction::Load if row.kind.is_empty() => {}
                Direction::Load => buffer.poison()?,
            }
        }
        Ok(())
    }

    fn verify(
        &self,
        direction: Direction,
        pattern: Pattern,
        buffers: &[Buffer],
    ) -> Result<(), Trouble> {
        if direction == Direction::Save {
            let checked = self.disk.check(pattern, buffers.len() as u64 * self.args.size);
            let checked = checked.map_err(|errno| Trouble::failed("reading the file", errno))?;
            return checked.map_err(|difference| Trouble::different(&difference));
        }
        for (buffer, at) in buffers.iter().zip(self.places()) {
            buffer.check(pattern, at)?.map_err(|difference| Trouble::different(&difference))?;
        }
        Ok(())
    }

    /// The offset of each buffer's content in the file.
    fn places(&self) -> impl Iterator<Item = u64> {
        (0..self.disk.len()).step_by(self.args.size as usize)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Benchmark, Cli};
    use crate::buffer::BufferKind;
    use crate::buffer::transfer::TransferMethod;
    use crate::measure::outcome::Status;

    const SIZE: u64 = 1 << 20;

    fn arguments(folder: &tempfile::TempDir) -> TableArgs {
        let dir = folder.path().to_str().expect("text");
        let arguments = ["dmabuf-dio-bench", "table", "--keep-caches", "--buffers", "2"];
        let arguments = arguments.into_iter().chain(["--size", "1M", "--dir", dir]);
        match Cli::try_parse_from(arguments).expect("usage").benchmark {
            Benchmark::Table(args) => args,
            _ => unreachable!("the table was asked for"),
        }
    }

    /// Rows that every kernel supports, if the file system does.
    fn rows(disk: &DiskFile) -> Vec<TableRow> {
        let everywhere = |row: &TableRow| {
            row.kind == BufferKind::Memfd && row.method != TransferMethod::CopyFileRange
        };
        ROWS.into_iter().filter(everywhere).filter(|row| disk.open(row.mode).is_ok()).collect()
    }

    #[test]
    fn every_row_finds_a_wrong_byte_of_the_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let args = arguments(&folder);
        let disk = DiskFile::create(folder.path(), 2 * SIZE).expect("a file");
        let content = Pattern::new(0);
        disk.write(&content).expect("written");
        let mut bench = TableBench::new(&args, disk, content);
        for row in rows(&bench.disk) {
            let sample = bench.sample(row, Direction::Load, 2).expect("all bytes in their places");
            assert!(sample.io_ms > 0.0 && sample.create_ms > 0.0 && sample.close_ms > 0.0);
        }
        let at = SIZE + 4097;
        bench.disk.damage(at);
        for row in rows(&bench.disk) {
            let trouble = bench.sample(row, Direction::Load, 2).expect_err("a difference");
            assert_eq!(trouble.status, Status::Different);
            assert!(trouble.reason.contains(&at.to_string()), "{trouble:?}");
        }
    }

    #[test]
    fn every_row_replaces_the_content_of_the_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let args = arguments(&folder);
        let disk = DiskFile::create(folder.path(), 2 * SIZE).expect("a file");
        disk.write(&Pattern::new(0)).expect("written");
        let mut bench = TableBench::new(&args, disk, Pattern::new(0));
        for row in rows(&bench.disk) {
            let number = bench.next;
            bench.sample(row, Direction::Save, 2).expect("all bytes in their places");
            assert_eq!(
                bench.disk.check(Pattern::new(number), 2 * SIZE),
                Ok(Ok(())),
                "{}",
                row.name()
            );
            assert!(bench.disk.check(Pattern::new(bench.next), 2 * SIZE).expect("read").is_err());
        }
    }
}
