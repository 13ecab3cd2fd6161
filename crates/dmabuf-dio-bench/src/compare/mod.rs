// SPDX-License-Identifier: MIT OR Apache-2.0
//! `compare`: how fast every available way and program loads a file, relative to the disk's maximum.

pub(crate) mod child;
mod contender;
mod contract;
mod fio;
mod safetensors;
mod settings;

use clap::{Args, value_parser};
use dmabuf_dio_terminal::exit::Failure;
use dmabuf_dio_terminal::signals;
use dmabuf_dio_terminal::size::show_size;

use crate::args::{CommonArgs, EXIT_CODES, whole_pages};
use crate::buffer::mapping::{Mapping, Pages};
use crate::disk::{Caches, DiskFile};
use crate::host::facts::{Facts, lack_of_memory, spare_memory};
use crate::measure::outcome::{Status, Trouble};
use crate::measure::time::show;
use crate::measure::turns::{Samples, take_turns};
use crate::pattern::Pattern;
use crate::report::grid::Grid;
use crate::report::json::Object;
use crate::report::page::{Page, Report};
use crate::report::row::{Column, Row, Run, Size, grid};
use crate::ways::held::PagesGot;
use crate::ways::registry::{COMPARE, OwnWay, READ};
use child::own_way;
use contender::{Contender, Peer};
use contract::{LoaderReport, Source};
use fio::SequentialFio;
use safetensors::{SafeTensors, Tensors};
use settings::SettingsFound;

/// Arguments of `compare`.
#[derive(Debug, Args)]
#[command(about = "Every method of loading a file into memory, and the disk's maximum")]
#[command(after_help = format!("\
Each method is measured in its own process, from knowing only the path to having all bytes in memory.
fio, if it is installed, measures the disk's maximum. As root, the program allows huge pages and sets
read-ahead while a method that needs them is measured, and restores the settings afterwards.

  dmabuf-dio   the library, by backend           read()     through the page cache
  mmap         the mapped file, every page       pread,     past the page cache, O_DIRECT,
               of it touched                     io_uring   into anonymous memory

A peer is a command that is started with the path as an argument, followed by --verify SEED if it is
to compare the content. It prints {{\"ready\":true}}, waits for a line on its standard input, loads the
file, and prints one line of JSON, which docs/notes/measuring.md describes.

Examples:
  dmabuf-dio-bench compare --dir /mnt/nvme
  dmabuf-dio-bench compare --sizes 13G --runs 3 --ways memfd,read-malloc,mmap-8m
  dmabuf-dio-bench compare --sizes 4K,16K,64K --runs 9
  dmabuf-dio-bench compare --processes 4 --sizes 1G --tensors many
  dmabuf-dio-bench compare --peer 'safetensors=python3 load_safetensors.py'

{EXIT_CODES}"))]
pub(crate) struct CompareArgs {
    /// Sizes of a file, multiples of the page size
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = whole_pages,
          default_value = "512K,8M,128M,1G,3G")]
    pub(crate) sizes: Vec<u64>,
    /// Runs of each way, five times as many for files below 1 MiB; ways alternate
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = value_parser!(u32).range(1..=99))]
    pub(crate) runs: u32,
    /// Only these of the built-in ways; fio and peers are always measured
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = own_way)]
    pub(crate) ways: Vec<&'static OwnWay>,
    /// Processes that load at the same time, each its own file
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = value_parser!(u64).range(1..=64))]
    pub(crate) processes: u64,
    /// Content of the file
    #[arg(long, value_enum, default_value_t = Tensors::Few)]
    pub(crate) tensors: Tensors,
    /// Another program that loads a file, for comparison; may be repeated
    #[arg(long = "peer", value_name = "NAME=COMMAND", value_parser = peer)]
    pub(crate) peers: Vec<Peer>,
    /// Compare every byte in every run, not only in the first of each way
    #[arg(long)]
    pub(crate) verify: bool,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

fn peer(text: &str) -> Result<Peer, String> {
    match text.split_once('=') {
        Some((name, command)) if !name.is_empty() && !command.trim().is_empty() => {
            Ok(Peer { name: name.into(), command: command.into() })
        }
        _ => Err("write NAME=COMMAND".into()),
    }
}

/// Below this length, runs are short and more of them are needed.
const SMALL: u64 = 1 << 20;
const MANY: u32 = 5;
/// Memory is touched in pieces of this size, between which interruption is checked for.
const PIECE: u64 = 256 << 20;

pub(crate) fn measure(args: &CompareArgs) -> Result<Report, Failure> {
    let facts = Facts::begin(&args.common)?;
    let found = SettingsFound::now(facts.device());
    let mut sizes = Vec::new();
    for bytes in args.sizes.iter().copied() {
        let runs = runs(args, bytes);
        sizes.push(match files(args, bytes) {
            Ok(files) => {
                let caches = Caches::new(args.common.keep_caches);
                let bench = CompareBench { args, files, runs, device: facts.device(), caches };
                let (facts, rows) = bench.size()?;
                Size { bytes, facts, rows: Ok(rows) }
            }
            Err(failure) => {
                Failure::if_interrupted()?;
                let facts = Object::default().with("runs", runs);
                Size { bytes, facts, rows: Err(failure.what().to_owned()) }
            }
        });
    }
    let json = Object::of_bench("compare", &facts.json)
        .with("version", env!("CARGO_PKG_VERSION"))
        .object("found", Some(found.json.clone()))
        .with("fio", crate::fio::version())
        .with("processes", args.processes)
        .with("tensors", args.tensors.name())
        .with("content", SafeTensors::formula())
        .with("verified_in", verified_in(args))
        .list("sizes", sizes.iter().map(|size| size.json("rows")));
    let statuses = sizes.iter().flat_map(Size::rows).map(Row::status).collect();
    Ok(Report { page: page(args, &facts, &found, &sizes), json, statuses })
}

fn runs(args: &CompareArgs, bytes: u64) -> u32 {
    if bytes < SMALL { args.runs * MANY } else { args.runs }
}

fn verified_in(args: &CompareArgs) -> &'static str {
    if args.verify { "every run" } else { "the first run" }
}

/// A named file and its content.
struct TestFile {
    disk: DiskFile,
    pattern: Pattern,
    data_start: u64,
}

/// Writes a file for each process.
fn files(args: &CompareArgs, bytes: u64) -> Result<Vec<TestFile>, Failure> {
    // A peer may change its folder before it opens the file.
    let dir = std::fs::canonicalize(&args.common.dir).unwrap_or_else(|_| args.common.dir.clone());
    let mut files = Vec::new();
    for number in 0..args.processes {
        let name = format!(".dmabuf-dio-bench-{}-{number}.safetensors", std::process::id());
        // Those that are to come have to fit too.
        let rest = (args.processes - number).saturating_mul(bytes);
        let disk = DiskFile::create_named(&dir, &name, bytes, rest)?;
        let pattern = Pattern::new(number);
        let content = SafeTensors::new(bytes, args.tensors, pattern);
        disk.write(&content)?;
        files.push(TestFile { disk, pattern, data_start: content.data_start() });
    }
    Ok(files)
}

struct CompareBench<'a> {
    args: &'a CompareArgs,
    files: Vec<TestFile>,
    runs: u32,
    device: Option<&'a str>,
    caches: Caches,
}

impl CompareBench<'_> {
    /// The facts and the rows of this size.
    fn size(&self) -> Result<(Object, Vec<Row>), Failure> {
        let contenders = self.contenders();
        let name =
            |contender: &Contender| format!("{}, {}", show_size(self.len()), contender.name());
        let run = |contender: &Contender, run| {
            self.sample(contender, run == 1 || self.args.verify).map(Some)
        };
        let results = take_turns(&contenders, 1..=self.runs, name, run)?;
        let (base, rows) = lines(&contenders, &results, self.total());
        // From these a peer computes the content of each file.
        let seeds: Vec<u64> = self.files.iter().map(|file| file.pattern.seed()).collect();
        let facts = Object::default().with("seeds", seeds).with("runs", self.runs);
        Ok((facts.object("base", base), rows))
    }

    fn contenders(&self) -> Vec<Contender> {
        let chosen =
            |own: &&'static OwnWay| self.args.ways.is_empty() || self.args.ways.contains(own);
        let fio = SequentialFio::for_file(self.len()).map(Contender::Fio);
        let own = COMPARE.iter().filter(chosen).map(Contender::Own);
        let peers = self.args.peers.iter().cloned().map(Contender::Peer);
        fio.chain(own).chain(peers).collect()
    }

    /// The length of a file.
    fn len(&self) -> u64 {
        self.files.first().map_or(0, |file| file.disk.len())
    }

    /// Total length of all files.
    fn total(&self) -> u64 {
        self.files.iter().map(|file| file.disk.len()).sum()
    }

    fn sample(&self, contender: &Contender, verify: bool) -> Result<ContenderSample, Trouble> {
        if let Some(reason) = lack_of_memory(contender.least_memory(self.total())) {
            return Err(Trouble::new(Status::Unavailable, reason));
        }
        let settings = contender.settings();
        let _until_done = settings.apply(self.total(), self.device)?;
        for file in &self.files {
            self.caches.drop(&file.disk);
        }
        let cached_before = self.cached();
        // More than is needed: others take some of it in between.
        let touched = 2 * contender.memory(self.total());
        let told = contender.run(&self.sources(), verify, || touch_memory(touched))?;
        Ok(ContenderSample { told, cached_before, cached_after: self.cached() })
    }

    fn sources(&self) -> Vec<Source<'_>> {
        let sources = self.files.iter().filter_map(|file| {
            Some(Source {
                path: file.disk.path()?,
                len: file.disk.len(),
                data_start: file.data_start,
                seed: file.pattern.seed(),
                tensors: self.args.tensors,
            })
        });
        sources.collect()
    }

    fn cached(&self) -> Option<u64> {
        self.files.iter().map(|file| file.disk.cached()).sum()
    }
}

/// Touches this much memory, or all there is. In a virtual machine the first touch can take seconds
/// per GiB, and memory that was free for a while may have to be touched again.
fn touch_memory(len: u64) {
    let len = len.min(spare_memory());
    let Ok(mut mapping) = Mapping::anonymous(len, Pages::Huge) else { return };
    for at in (0..len).step_by(PIECE as usize) {
        // Errors here surface in the measurement.
        if signals::caught().is_some() || mapping.populate(at, PIECE.min(len - at)).is_err() {
            return;
        }
    }
}

/// One run of one contender.
#[derive(Clone, Debug)]
struct ContenderSample {
    /// One for each process.
    told: Vec<LoaderReport>,
    cached_before: Option<u64>,
    cached_after: Option<u64>,
}

impl ContenderSample {
    fn seconds(&self) -> f64 {
        self.told.iter().map(|told| told.seconds).fold(0.0, f64::max)
    }

    fn sum(&self, of: impl Fn(&LoaderReport) -> f64) -> f64 {
        self.told.iter().map(of).sum()
    }

    fn release(&self) -> Option<f64> {
        self.told.iter().map(|told| told.release_seconds).sum()
    }

    fn cache_growth(&self) -> Option<f64> {
        Some((self.cached_after? as f64 - self.cached_before? as f64).max(0.0))
    }

    /// Sum over all processes.
    fn pages(&self) -> Option<PagesGot> {
        let first = self.told.first()?.pages?;
        let huge: Option<u64> = self.told.iter().map(|told| Some(told.pages?.huge_bytes)).sum();
        Some(PagesGot { huge_bytes: huge?, ..first })
    }

    /// `bytes`: of all files.
    fn run(&self, bytes: u64) -> Run {
        let cpu = self.sum(|told| told.user_seconds + told.sys_seconds);
        let gib = bytes as f64 / f64::from(1 << 30);
        let mut run = vec![
            ("seconds", self.seconds()),
            ("gb_per_s", bytes as f64 / 1e9 / self.seconds()),
            ("user_seconds", self.sum(|told| told.user_seconds)),
            ("sys_seconds", self.sum(|told| told.sys_seconds)),
            ("cpu_seconds_per_gib", cpu / gib),
        ];
        run.extend(self.release().map(|seconds| ("release_seconds", seconds)));
        run.extend(self.cache_growth().map(|bytes| ("cache_growth", bytes)));
        run
    }
}

/// The results of all contenders, for `bytes` of files, and the reference of `ratio`.
fn lines(
    contenders: &[Contender],
    results: &[Samples<ContenderSample>],
    bytes: u64,
) -> (Option<Object>, Vec<Row>) {
    let lines =
        contenders.iter().zip(results).map(|(contender, result)| line(contender, result, bytes));
    let mut lines: Vec<Row> = lines.collect();
    let base = base(contenders, &lines);
    for line in &mut lines {
        let pair = line.median("gb_per_s").zip(base.as_ref());
        line.derive("ratio", pair.map(|(own, (.., base))| own / base));
    }
    let base = base.map(|(name, is_ceiling, gb_per_s)| {
        Object::default()
            .with("name", name)
            .with("is_ceiling", is_ceiling)
            .with("gb_per_s", gb_per_s)
    });
    (base, lines)
}

/// The fastest run of fio, which is the disk's maximum and not one of the contenders; or, without fio,
/// `read()`.
fn base(contenders: &[Contender], lines: &[Row]) -> Option<(String, bool, f64)> {
    let fastest = |is_ceiling: bool, is_it: &dyn Fn(&Contender) -> bool| {
        let rows = contenders.iter().zip(lines).filter(|(contender, _)| is_it(contender));
        let measured = rows.filter_map(|(contender, line)| {
            Some((contender.name(), is_ceiling, line.median("gb_per_s")?))
        });
        measured.max_by(|a, b| a.2.total_cmp(&b.2))
    };
    let is_ceiling = |it: &Contender| matches!(it, Contender::Fio(fio) if fio.is_ceiling());
    let is_read = |it: &Contender| matches!(it, Contender::Own(own) if own.id == READ);
    fastest(true, &is_ceiling).or_else(|| fastest(false, &is_read))
}

fn line(contender: &Contender, result: &Samples<ContenderSample>, bytes: u64) -> Row {
    let samples = result.as_deref().unwrap_or_default();
    let told = || samples.iter().flat_map(|sample| &sample.told);
    let mut notes: Vec<String> = Vec::new();
    for note in told().filter_map(|told| told.note.clone()) {
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    let cached = samples.iter().filter_map(|sample| sample.cached_before).max();
    if cached.is_some_and(|cached| cached > bytes / 20) {
        notes.push("part of the file was in the page cache before".into());
    }
    // The name of a built-in way, for --ways.
    let id = match contender {
        Contender::Own(own) => Some(own.id),
        _ => None,
    };
    let facts = Object::default().with("name", contender.name()).with("id", id);
    let mut row = Row::of(vec![contender.name()], facts, result, |sample| sample.run(bytes));
    // Page sizes of the last run.
    let pages = samples.last().and_then(ContenderSample::pages);
    row.cells = pages.map(|pages| show_pages(pages, bytes)).into_iter().collect();
    let version = told().find_map(|told| told.version.clone());
    row.more = Object::default()
        .object(
            "pages",
            pages.map(|pages| {
                Object::default()
                    .with("page_size", pages.page_size)
                    .with("huge_bytes", pages.huge_bytes)
            }),
        )
        .with("version", version.clone())
        .with("notes", notes.clone());
    let version = version.map(|version| format!("version {version}"));
    row.notes = version.into_iter().chain(notes).collect();
    row
}

fn page(args: &CompareArgs, facts: &Facts, found: &SettingsFound, sizes: &[Size]) -> Page {
    let mut page = Page::default();
    page.title("A file into memory");
    page.line(facts.line());
    for size in sizes {
        let (bytes, runs) = (show_size(size.bytes), runs(args, size.bytes));
        let title = match args.processes {
            1 => format!("{bytes}, runs: {runs}"),
            count => format!("{count} x {bytes}, {count} processes at once, runs: {runs}"),
        };
        page.size(size, title, || table(size.rows(), runs));
        for row in size.rows() {
            for note in &row.notes {
                page.note(row.label.clone(), note.clone());
            }
        }
    }
    legend(&mut page, args, facts, found);
    page
}

fn table(rows: &[Row], runs: u32) -> Grid {
    let is_huge_fio = |name: &str| name.starts_with("fio ") && !name.ends_with(", 4 KiB");
    let is_ceiling = rows.iter().any(|row| row.is_measured() && is_huge_fio(&row.names[0]));
    let columns = [
        Some(Column::median("ms", "seconds", |seconds| show(seconds * 1e3))),
        Some(Column::median("GB/s", "gb_per_s", show)),
        Column::range("gb_per_s", runs),
        Some(Column::number(if is_ceiling { "of fio" } else { "of read" }, "ratio", show)),
        Some(Column::median("CPU s/GiB", "cpu_seconds_per_gib", show)),
        Some(Column::median("cache MiB", "cache_growth", |bytes| show(bytes / f64::from(1 << 20)))),
        Some(Column::median("release ms", "release_seconds", |seconds| show(seconds * 1e3))),
        Some(Column::cell("pages", 0)),
    ];
    grid(&["way"], columns, rows)
}

/// The most frequent page size and, if not all pages are huge, the share of huge ones.
fn show_pages(pages: PagesGot, bytes: u64) -> String {
    let percent = (pages.huge_bytes as f64 / bytes as f64 * 100.0).min(100.0);
    let size = show_size(pages.page_size);
    if pages.huge_bytes == 0 || percent > 99.0 { size } else { format!("{percent:.0}% huge") }
}

fn legend(page: &mut Page, args: &CompareArgs, facts: &Facts, found: &SettingsFound) {
    let ratio = match crate::fio::version() {
        Some(version) => format!(
            "speed relative to the fastest {version} into huge pages, which is what the disk can \
             do; where there is none (small files, no huge pages: run as root) to read() into malloc"
        ),
        None => "speed relative to read() into malloc: fio is not installed, which would say what \
                 the disk can do (apt-get install fio)"
            .into(),
    };
    page.note("of fio, of read", ratio);
    page.notes(LEGEND);
    let read_ahead = found.read_ahead_kb.as_deref().unwrap_or("?");
    page.note(
        "mmap",
        format!("the file mapped, and a byte of every page read; read-ahead as found is {read_ahead} KiB"),
    );
    page.note(
        "runs",
        format!(
            "ways take turns; before each, caches are dropped ({}) and as much memory is used and \
             given back; figures are medians",
            facts.caches_dropped_by
        ),
    );
    page.note(
        "content",
        format!("every byte was compared in {} of each way, except fio's", verified_in(args)),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn told(seconds: f64) -> LoaderReport {
        LoaderReport {
            seconds,
            user_seconds: 0.25,
            sys_seconds: 0.5,
            release_seconds: Some(0.125),
            bytes: 1 << 30,
            verified: None,
            version: None,
            note: Some("a note".into()),
            pages: None,
        }
    }

    fn sample(seconds: &[f64]) -> ContenderSample {
        let told = seconds.iter().map(|seconds| told(*seconds)).collect();
        ContenderSample { told, cached_before: Some(4096), cached_after: Some(8192) }
    }

    #[test]
    fn figures_take_the_last_process_and_total_cpu_time() {
        let run = sample(&[1.0, 2.0]).run(2 << 30);
        let figure = |name| run.iter().find(|(figure, _)| *figure == name).map(|(_, value)| *value);
        assert_eq!(figure("seconds"), Some(2.0));
        let speed = figure("gb_per_s").expect("a speed");
        assert!((speed - f64::from(1 << 30) / 1e9).abs() < 1e-9);
        assert_eq!(figure("cpu_seconds_per_gib"), Some(0.75));
        assert_eq!(figure("release_seconds"), Some(0.25));
        assert_eq!(figure("cache_growth"), Some(4096.0));
    }

    #[test]
    fn ceiling_is_the_fastest_fio_or_else_read() {
        let read = own_way(READ).expect("there is one");
        let mut contenders: Vec<Contender> =
            SequentialFio::for_file(1 << 30).map(Contender::Fio).collect();
        contenders.push(Contender::Own(read));
        let seconds = [4.0, 2.0, 3.0, 4.0, 1.0, 1.0];
        let mut results: Vec<Samples<ContenderSample>> =
            seconds.map(|time| Ok(vec![sample(&[time])])).into();
        let named = |base: Option<Object>| serde_json::to_string(&base).expect("JSON");
        let (base, rows) = lines(&contenders, &results, 1 << 30);
        let base = named(base);
        assert!(base.contains(r#""name":"fio 4 MiB x 8","is_ceiling":true"#), "{base}");
        assert_eq!(rows[5].number("ratio"), Some(2.0));
        assert_eq!(rows[5].notes, ["a note"], "once");
        for result in &mut results[..5] {
            *result = Err(Trouble::short("nothing", 0, 1));
        }
        let (base, _) = lines(&contenders, &results, 1 << 30);
        let base = named(base);
        assert!(base.contains(r#""name":"read() into malloc","is_ceiling":false"#), "{base}");
    }
}
