// SPDX-License-Identifier: MIT OR Apache-2.0
//! `table`: the table of the thread "dmabuf direct I/O via `copy_file_range`".

use clap::{Args, ValueEnum, value_parser};
use dmabuf_dio::Direction;
use dmabuf_dio_terminal::exit::Failure;
use dmabuf_dio_terminal::size::show_size;

use crate::args::{CommonArgs, EXIT_CODES, whole_pages};
use crate::buffer::transfer::Mover;
use crate::buffer::{Buffer, Maker, touch_memory};
use crate::disk::{Caches, DiskFile, IoMode};
use crate::host::facts::{self, Facts};
use crate::measure::meter::Meter;
use crate::measure::outcome::Trouble;
use crate::measure::phase::Phase;
use crate::measure::time::{mb_per_s, show};
use crate::measure::turns::{Samples, take_turns};
use crate::pattern::Pattern;
use crate::report::json::Object;
use crate::report::page::{Page, Report};
use crate::report::row::{Column, Row, Run, grid};
use crate::ways::Transfer;
use crate::ways::registry::TABLE;

/// Arguments of `table`.
#[derive(Debug, Args)]
#[command(about = "The 22 ways of the thread \"dmabuf direct I/O via copy_file_range\"")]
#[command(after_help = format!("\
A row is a kind of buffer, a mode and a way. A way that this kernel lacks says so in place of
figures. The file has no name and is gone afterwards.

  dmabuf   a dma-buf of the system heap        buffer  through the page cache
  udmabuf  a dma-buf made of a memfd           direct  past it, O_DIRECT
  memfd    shared memory without pages yet     R/W     read() or write() on a mapping
  u+memfd  a udmabuf; bytes move by its memfd  c_f_r   copy_file_range()

Examples:
  dmabuf-dio-bench table --dir /mnt/nvme
  dmabuf-dio-bench table --buffers 4 --runs 5 --direction both
  dmabuf-dio-bench table --json --output table.json

{EXIT_CODES}"))]
pub(crate) struct TableArgs {
    /// Number of buffers
    #[arg(long, value_name = "NUMBER", default_value_t = 32, value_parser = value_parser!(u64).range(1..=512))]
    pub(crate) buffers: u64,
    /// Size of a buffer, a multiple of the page size
    #[arg(long, value_name = "SIZE", value_parser = whole_pages, default_value = "32MiB")]
    pub(crate) size: u64,
    /// Runs of each row; rows alternate
    #[arg(long, value_name = "NUMBER", default_value_t = 3, value_parser = value_parser!(u32).range(1..=99))]
    pub(crate) runs: u32,
    /// From the file to the buffers, from the buffers to the file, or both
    #[arg(long, value_enum, default_value_t = Directions::Read)]
    pub(crate) direction: Directions,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Directions {
    Read,
    Write,
    Both,
}

impl Directions {
    pub(crate) fn each(self) -> &'static [Direction] {
        match self {
            Self::Read => &[Direction::Load],
            Self::Write => &[Direction::Save],
            Self::Both => &[Direction::Load, Direction::Save],
        }
    }
}

pub(crate) fn measure(args: &TableArgs) -> Result<Report, Failure> {
    let total = args.buffers.saturating_mul(args.size);
    facts::ensure_memory(total)?;
    let disk = DiskFile::create(&args.common.dir, total)?;
    let content = Pattern::new(0);
    disk.write(&content)?;
    touch_memory(total);
    let mut bench = TableBench::new(args, disk, content);
    let parts = args.direction.each().iter().map(|direction| bench.part(*direction));
    let parts = parts.collect::<Result<Vec<_>, _>>()?;
    let facts = Facts::of(&bench.disk, &args.common);
    let json = Object::of_bench("table", &facts.json)
        .with("buffers", args.buffers)
        .with("buffer_size", args.size)
        .with("runs", args.runs)
        .list("parts", parts.iter().map(Part::json));
    let statuses = parts.iter().flat_map(|part| &part.rows).map(Row::status).collect();
    Ok(Report { page: page(args, &facts, &parts), json, statuses })
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

    fn part(&mut self, direction: Direction) -> Result<Part, Failure> {
        let TableArgs { buffers, runs, .. } = *self.args;
        let name = |row: &Transfer| format!("{}, {}", direction, row.name());
        // Run 0 is of one buffer.
        let count = |run| if run == 0 { 1 } else { buffers };
        let run = |row: &Transfer, run| self.sample(*row, direction, count(run)).map(Some);
        let results = take_turns(&TABLE, 0..=runs, name, run)?;
        let rows = (1..).zip(TABLE).zip(&results);
        let rows = rows.map(|((number, row), result)| line(number, row, self.disk.len(), result));
        Ok(Part::of(direction, rows.collect()))
    }

    /// Creates a number of buffers, transfers, compares, overwrites and closes them.
    fn sample(
        &mut self,
        row: Transfer,
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

        let mut meter = Meter::default();
        let make = || (0..count).map(|_| maker.make(size)).collect::<Result<Vec<_>, _>>();
        let buffers = meter.allocation(make)?;
        self.prepare(row, direction, pattern, &buffers)?;

        let cached_before = self.disk.cached();
        let mappings = meter.io(|| mover.run(file, row.kind, &buffers))?;
        let cached_after = self.disk.cached();

        self.verify(direction, pattern, &buffers)?;
        for buffer in &buffers {
            buffer.poison()?;
        }
        meter.close(|| drop((mappings, buffers)));
        Ok(TransferSample { meter, cached_before, cached_after })
    }

    /// Before reading, fills the buffers with wrong data; before writing, with the data to write.
    fn prepare(
        &self,
        row: Transfer,
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

/// One run of one row.
#[derive(Debug)]
struct TransferSample {
    meter: Meter<'static>,
    cached_before: Option<u64>,
    cached_after: Option<u64>,
}

impl TransferSample {
    fn run(&self) -> Run {
        let ms = |phase| self.meter.ms(phase).unwrap_or_default();
        let cpu = self.meter.of(Phase::Io).map_or(0.0, |io| io.took.cpu_ms());
        vec![
            ("create_ms", ms(Phase::Allocation)),
            ("close_ms", ms(Phase::Close)),
            ("io_ms", ms(Phase::Io)),
            ("io_cpu_ms", cpu),
        ]
    }
}

/// A row and its runs.
fn line(number: usize, row: Transfer, bytes: u64, result: &Samples<TransferSample>) -> Row {
    let samples = result.as_deref().unwrap_or_default();
    let facts = Object::default()
        .with("number", number)
        .with("name", row.name())
        .with("buffer", row.kind.name())
        .with("mode", row.mode.name())
        .with("way", row.method.call_name());
    let names = vec![number.to_string(), row.name()];
    let mut line = Row::of(names, facts, result, TransferSample::run);
    line.label = format!("row {number}");
    line.derive("io_mb_per_s", line.median("io_ms").map(|ms| mb_per_s(bytes, ms)));
    line.notes = notes(row, bytes, samples);
    // Bytes of the file in the page cache after the I/O: the maximum of all runs.
    let cached = samples.iter().filter_map(|sample| sample.cached_after).max();
    line.more = Object::default().with("cached_bytes", cached).with("notes", line.notes.clone());
    line
}

/// Why a row differs from its name.
fn notes(row: Transfer, bytes: u64, samples: &[TransferSample]) -> Vec<String> {
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

/// All rows in one direction.
#[derive(Debug)]
struct Part {
    direction: Direction,
    /// The row to which `percent` refers: the first that could be measured.
    base: Option<usize>,
    rows: Vec<Row>,
}

impl Part {
    fn of(direction: Direction, mut rows: Vec<Row>) -> Self {
        let base = rows.iter().position(Row::is_measured);
        let speed = base.and_then(|base| rows[base].number("io_mb_per_s"));
        for row in &mut rows {
            let percent = row.number("io_mb_per_s").zip(speed);
            row.derive("percent", percent.map(|(own, base)| own / base * 100.0));
        }
        Self { direction, base: base.map(|base| base + 1), rows }
    }

    fn json(&self) -> Object {
        let direction = match self.direction {
            Direction::Load => "read",
            Direction::Save => "write",
        };
        Object::default()
            .with("direction", direction)
            .with("base", self.base)
            .list("rows", self.rows.iter().map(Row::json))
    }
}

fn page(args: &TableArgs, facts: &Facts, parts: &[Part]) -> Page {
    let mut page = Page::default();
    for part in parts {
        let moved = match part.direction {
            Direction::Load => "read from a file into buffers",
            Direction::Save => "written from buffers to a file",
        };
        let (count, size) = (args.buffers, show_size(args.size));
        let total = show_size(args.buffers * args.size);
        page.title(format!("{count} x {size} = {total} {moved}, runs: {}", args.runs));
        page.line(facts.line());
        let columns = [
            Some(Column::median("create-ms", "create_ms", show)),
            Some(Column::median("close-ms", "close_ms", show)),
            Some(Column::median("I/O-ms", "io_ms", show)),
            Column::range("io_ms", args.runs),
            Some(Column::number("I/O-MB/s", "io_mb_per_s", |speed| format!("{speed:.0}"))),
            Some(Column::number("I/O%", "percent", |percent| format!("{percent:.0}%"))),
            Some(Column::median("CPU-ms", "io_cpu_ms", show)),
        ];
        page.table(grid(&["#", "row"], columns, &part.rows));
        for row in &part.rows {
            for note in &row.notes {
                page.note(row.label.clone(), note.clone());
            }
        }
        if let Some(base) = part.base.filter(|base| *base != 1) {
            page.note("I/O%", format!("of row {base}: row 1 could not be measured"));
        }
    }
    legend(&mut page, args, facts);
    page
}

fn legend(page: &mut Page, args: &TableArgs, facts: &Facts) {
    for (word, meaning) in WORDS {
        page.note(word, meaning);
    }
    page.note("create-ms, close-ms", "creating all buffers; unmapping and closing them");
    let mut io = "transferring all bytes; for R/W, with mapping and DMA_BUF_IOCTL_SYNC".to_owned();
    if args.direction.each().contains(&Direction::Save) {
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
            facts.caches_dropped_by
        ),
    );
    page.note("content", "every byte was compared after every row of every run");
}

/// The words that form the names of rows.
const WORDS: [(&str, &str); 7] = [
    ("dmabuf", "a dma-buf of the system heap"),
    ("udmabuf", "a dma-buf over a memfd"),
    ("memfd", "shared memory without pages: the I/O includes their allocation"),
    ("u+memfd", "a udmabuf and its memfd: the I/O uses the memfd, whose pages are allocated"),
    ("buffer, direct", "through the page cache, or direct: the file is open with O_DIRECT"),
    ("R/W", "read() or write() on a mapping of the buffer"),
    ("c_f_r", "copy_file_range()"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    use crate::buffer::BufferKind;
    use crate::buffer::transfer::TransferMethod;
    use crate::measure::outcome::Status;

    const SIZE: u64 = 1 << 20;

    fn arguments(folder: &tempfile::TempDir) -> TableArgs {
        #[derive(Debug, clap::Parser)]
        struct Cli {
            #[command(flatten)]
            table: TableArgs,
        }
        let dir = folder.path().to_str().expect("text");
        let arguments = ["table", "--keep-caches", "--buffers", "2", "--size", "1M", "--dir", dir];
        Cli::try_parse_from(arguments).expect("usage").table
    }

    /// Rows that every kernel supports, if the file system does.
    fn rows(disk: &DiskFile) -> Vec<Transfer> {
        let everywhere = |row: &Transfer| {
            row.kind == BufferKind::Memfd && row.method != TransferMethod::CopyFileRange
        };
        TABLE.into_iter().filter(everywhere).filter(|row| disk.open(row.mode).is_ok()).collect()
    }

    #[test]
    fn percentages_refer_to_the_first_row_that_ran() {
        let sample = |ms: u64| {
            let mut meter = Meter::default();
            meter.allocation(|| ());
            meter.io(|| std::thread::sleep(std::time::Duration::from_millis(ms)));
            meter.close(|| ());
            TransferSample { meter, cached_before: None, cached_after: Some(SIZE) }
        };
        let results: [Samples<TransferSample>; 3] = [
            Err(Trouble::short("nothing", 0, SIZE)),
            Ok(vec![sample(20), sample(10), sample(40)]),
            Ok(vec![sample(5)]),
        ];
        let rows = (1..).zip(TABLE).zip(&results);
        let rows = rows.map(|((number, row), result)| line(number, row, SIZE, result));
        let part = Part::of(Direction::Load, rows.collect());
        assert_eq!(part.base, Some(2));
        let percent: Vec<_> = part.rows.iter().map(|row| row.number("percent")).collect();
        assert!(percent[0].is_none() && percent[1] == Some(100.0), "{percent:?}");
        assert!(percent[2].expect("a number") > 100.0, "{percent:?}");
        assert!(part.rows.iter().all(|row| row.notes.is_empty()), "these rows are buffered");
        assert_eq!(notes(TABLE[3], SIZE, &[sample(1)]).len(), 1, "direct, but cached");
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
            assert!(sample.run().iter().all(|(_, ms)| *ms >= 0.0) && sample.run()[2].1 > 0.0);
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
