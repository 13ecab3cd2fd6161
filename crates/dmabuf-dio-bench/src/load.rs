// SPDX-License-Identifier: MIT OR Apache-2.0
//! `load`: the schemes of the thread "`DMA_HEAP_ALLOC_AND_READ_FILE` heap flag".

use clap::{Args, value_parser};
use dmabuf_dio::Direction;
use dmabuf_dio_sys::Errno;
use dmabuf_dio_terminal::exit::Failure;
use dmabuf_dio_terminal::size::show_size;

use crate::args::{CommonArgs, EXIT_CODES, whole_pages};
use crate::buffer::transfer::{Mover, TransferMethod};
use crate::buffer::{Buffer, BufferKind, Maker};
use crate::disk::{Caches, DiskFile, IoMode};
use crate::host::facts::Facts;
use crate::host::prepare;
use crate::measure::meter::Meter;
use crate::measure::outcome::{Number as _, Trouble};
use crate::measure::phase::Phase;
use crate::measure::time::{Summary, Took, show};
use crate::measure::turns::{Samples, take_turns};
use crate::pattern::Pattern;
use crate::report::json::Object;
use crate::report::page::{Page, Report};
use crate::report::row::{Column, Row, Run, Size, grid};
use crate::ways::registry::LOAD;
use crate::ways::{Gather, HEAP_GATHER, LoadProvider, Setup, Way, module};

/// Arguments of `load`.
#[derive(Debug, Args)]
#[command(about = "The schemes of the thread \"DMA_HEAP_ALLOC_AND_READ_FILE heap flag\"")]
#[command(after_help = format!("\
LOAD allocates and reads in one call: \"heap\" by the heap flag of kernel/series, \"module\" by the
kernel module. Without gather it allocates all memory before it reads; with gather it reads while
it allocates. /sys/module/dma_heap/parameters/read_gather is set for that and set back (as root).

Examples:
  dmabuf-dio-bench load --dir /mnt/nvme
  dmabuf-dio-bench load --sizes 8M,256M --runs 9
  dmabuf-dio-bench load --markdown --output load.md

{EXIT_CODES}"))]
pub(crate) struct LoadArgs {
    /// Sizes of the file, multiples of the page size
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = whole_pages,
          default_value = "512K,8M,1G,3G")]
    pub(crate) sizes: Vec<u64>,
    /// Runs of each row; rows alternate
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = value_parser!(u32).range(1..=99))]
    pub(crate) runs: u32,
    /// Memory that LOAD with gather allocates before the first read [default: 128 MiB for the heap
    /// flag, the module's parameter (8 MiB) for the module]
    #[arg(long, value_name = "SIZE", value_parser = whole_pages)]
    pub(crate) gather: Option<u64>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// Bytes transferred in the uncounted run.
const FIRST: u64 = 8 << 20;

type Scheme = (&'static str, IoMode, Way);

pub(crate) fn measure(args: &LoadArgs) -> Result<Report, Failure> {
    let facts = Facts::begin(&args.common)?;
    let sendfile_to_dmabuf = sendfile_to_dmabuf(&DiskFile::create(&args.common.dir, 0)?);
    let mut sizes = Vec::new();
    for (number, bytes) in (0..).zip(&args.sizes) {
        let pattern = Pattern::new(number);
        let rows = match prepare(&args.common, *bytes, *bytes, pattern)? {
            Err(reason) => Err(reason),
            Ok(disk) => {
                let caches = Caches::new(args.common.keep_caches);
                Ok(SchemeBench { args, disk, pattern, caches }.rows()?)
            }
        };
        sizes.push(Size { bytes: *bytes, facts: Object::default(), rows });
    }
    let json = Object::of_bench("load", &facts.json)
        .with("runs", args.runs)
        // The gather size; `null` is the module's default.
        .with("heap_gather", args.gather.unwrap_or(HEAP_GATHER))
        .with("module_gather", args.gather)
        .with("sendfile_to_dmabuf", sendfile_to_dmabuf.clone())
        .list("sizes", sizes.iter().map(|size| size.json("rows")));
    let statuses = sizes.iter().flat_map(Size::rows).map(Row::status).collect();
    let page = page(args, &facts, sendfile_to_dmabuf.as_deref(), &sizes);
    Ok(Report { page, json, statuses })
}

/// The result of `sendfile` to a dma-buf, which explains why a memfd is used. `None` without a heap.
fn sendfile_to_dmabuf(disk: &DiskFile) -> Option<String> {
    let file = disk.open(IoMode::Buffer).ok()?;
    let page = rustix::param::page_size();
    let buffer = Maker::new(BufferKind::DmaBuf).ok()?.make(page as u64).ok()?;
    Some(match rustix::fs::sendfile(buffer.target(), file, Some(&mut 0), page) {
        Ok(_) => "works".into(),
        Err(errno) => Errno::to_string(&errno.number()),
    })
}

struct SchemeBench<'a> {
    args: &'a LoadArgs,
    disk: DiskFile,
    pattern: Pattern,
    caches: Caches,
}

/// One run of one scheme.
#[derive(Clone, Copy, Debug)]
struct SchemeSample {
    /// Allocation and I/O, if they can be separated.
    parts: Option<[f64; 2]>,
    total: Took,
}

impl SchemeSample {
    fn run(&self) -> Run {
        let parts =
            self.parts.map(|[allocation, io]| [("allocation_ms", allocation), ("io_ms", io)]);
        let total = [("total_ms", self.total.wall_ms), ("total_cpu_ms", self.total.cpu_ms())];
        parts.into_iter().flatten().chain(total).collect()
    }
}

impl SchemeBench<'_> {
    fn rows(&self) -> Result<Vec<Row>, Failure> {
        let bytes = self.disk.len();
        let name = |(name, ..): &Scheme| format!("{}, {name}", show_size(bytes));
        // Run 0 is of a part.
        let most = |run| if run == 0 { FIRST } else { u64::MAX };
        let run = |scheme: &Scheme, run| self.sample(*scheme, bytes.min(most(run))).map(Some);
        Ok(lines(&take_turns(&LOAD, 0..=self.args.runs, name, run)?))
    }

    /// Creates the buffer and compares it. Reads into it again if I/O has to be separated from
    /// allocation.
    fn sample(&self, (_, mode, way): Scheme, len: u64) -> Result<SchemeSample, Trouble> {
        self.disk.open(mode)?;
        self.caches.drop(&self.disk);
        let mut setup = Setup::of_disk(&self.disk, len, self.args.gather);
        let mut meter = Meter::default();
        let mut held = way.run(&mut setup, &mut meter)?;
        held.compare(self.pattern, len)?;
        let total = meter.until_loaded();
        let mut parts = meter.ms(Phase::Allocation).zip(meter.ms(Phase::Io)).map(|(a, b)| [a, b]);
        if let (Way::Load(by, mode, Gather::Without), Some(buffer)) = (way, held.as_buffer()) {
            self.caches.drop(&self.disk);
            let io = self.io_alone(by, mode, buffer)?;
            held.compare(self.pattern, len)?;
            parts = Some([total.wall_ms - io, io]);
        }
        setup.close(held, &mut meter);
        Ok(SchemeSample { parts, total })
    }

    /// Reads the file again into a buffer created by LOAD, by the same provider: the I/O without the
    /// allocation.
    fn io_alone(&self, by: LoadProvider, mode: IoMode, buffer: &Buffer) -> Result<f64, Trouble> {
        let file = self.disk.open(mode)?;
        let mut meter = Meter::default();
        match by {
            LoadProvider::Heap => {
                let mover = Mover::new(TransferMethod::CopyFileRange, Direction::Load)?;
                meter.io(|| mover.run(file, BufferKind::DmaBuf, std::slice::from_ref(buffer)))?;
            }
            LoadProvider::Module => {
                let context = module::attach(buffer)?;
                meter.io(|| module::read(&context, file, buffer.len(), 0, 0))?;
            }
        }
        Ok(meter.until_loaded().wall_ms)
    }
}

fn lines(results: &[Samples<SchemeSample>]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for (index, ((name, mode, way), result)) in LOAD.iter().zip(results).enumerate() {
        let facts = Object::default().with("name", *name).with("mode", mode.name());
        let mut row = Row::of(vec![(*name).to_owned()], facts, result, SchemeSample::run);
        if row.is_measured() {
            let derived = matches!(way, Way::Load(..));
            row.more = Object::default().with("derived", derived);
        }
        if let (Way::Load(_, _, Gather::With), Ok(with)) = (way, result) {
            // The one before is the same without gather.
            let without = results[index - 1].iter().flatten();
            let saved = |(without, with): (&SchemeSample, &SchemeSample)| {
                without.total.wall_ms - with.total.wall_ms
            };
            row.add("hidden_ms", Summary::of(without.zip(with).map(saved)));
        }
        let base = rows.first().unwrap_or(&row).median("total_ms");
        let percent = base.zip(row.median("total_ms")).map(|(base, total)| base / total * 100.0);
        row.derive("percent", percent);
        rows.push(row);
    }
    rows
}

fn page(args: &LoadArgs, facts: &Facts, sendfile: Option<&str>, sizes: &[Size]) -> Page {
    let mut page = Page::default();
    page.title(format!("A file in a new buffer, runs: {}", args.runs));
    page.line(facts.line());
    let part = |head: &'static str, figure: &'static str| {
        Some(Column::new(head, move |row: &Row| {
            let derived = if row.names[0].starts_with("LOAD") { "~" } else { "" };
            let shown = row.median(figure).map(|value| format!("{derived}{}", show(value)));
            shown.unwrap_or_default()
        }))
    };
    for size in sizes {
        page.size(size, show_size(size.bytes), || {
            let columns = [
                part("alloc-ms", "allocation_ms"),
                part("I/O-ms", "io_ms"),
                Some(Column::median("total-ms", "total_ms", show)),
                Column::range("total_ms", args.runs),
                part("hidden-ms", "hidden_ms"),
                Some(Column::number("speed", "percent", |percent| format!("{percent:.0}%"))),
                Some(Column::median("CPU-ms", "total_cpu_ms", show)),
            ];
            grid(&["scheme"], columns, size.rows())
        });
    }
    legend(&mut page, args, facts, sendfile);
    page
}

fn legend(page: &mut Page, args: &LoadArgs, facts: &Facts, sendfile_to_dmabuf: Option<&str>) {
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
    let itself = match sendfile_to_dmabuf {
        None => String::new(),
        Some("works") => "; here it also works to a dma-buf".into(),
        Some(errno) => format!("; to a dma-buf itself: {errno}"),
    };
    page.note("sendfile", format!("sendfile() to a memfd, then create a udmabuf over it{itself}"));
    let heap = show_size(args.gather.unwrap_or(HEAP_GATHER));
    let module = args.gather.map_or_else(|| "its default".into(), show_size);
    page.note(
        "LOAD",
        format!(
            "allocate and read in one call: heap, by the heap flag; module, by /dev/dmabuf_dio. \
             Without gather all memory is allocated first; with gather reads begin as soon as \
             there is some (heap: {heap}, module: {module})",
        ),
    );
    page.notes(LEGEND);
    page.note(
        "times",
        format!(
            "are only to be compared within one table: schemes take turns, caches are dropped \
             before each ({}), figures are medians",
            facts.caches_dropped_by
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlap_is_the_time_saved_by_gather() {
        let sample = |wall_ms, parts| {
            let total = Took { wall_ms, ..Took::default() };
            SchemeSample { parts, total }
        };
        let mut results: Vec<Samples<SchemeSample>> =
            vec![Err(Trouble::short("nothing", 0, 1)); LOAD.len()];
        let index =
            LOAD.iter().position(|scheme| matches!(scheme.2, Way::Load(_, _, Gather::With)));
        let index = index.expect("a LOAD with gather");
        results[0] = Ok(vec![sample(20.0, Some([1.0, 19.0]))]);
        let without = [sample(10.0, Some([4.0, 6.0])), sample(12.0, Some([5.0, 7.0]))];
        results[index - 1] = Ok(without.to_vec());
        results[index] = Ok(vec![sample(7.0, None), sample(8.0, None)]);
        let rows = lines(&results);
        let with = &rows[index];
        // Allocation 4 and I/O 6 against 7 together; 12 against 8.
        assert_eq!(with.figure("hidden_ms").expect("hidden").values, [3.0, 4.0]);
        assert!(with.figure("allocation_ms").is_none());
        assert_eq!(rows[index - 1].number("percent"), Some(20.0 / 11.0 * 100.0));
        assert!(!rows[1].is_measured());
    }
}
