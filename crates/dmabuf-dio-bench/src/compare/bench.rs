// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures all contenders alternately.

use dmabuf_dio_cli::exit::Failure;
use dmabuf_dio_cli::signals;
use dmabuf_dio_cli::size::show_size;
use serde::Serialize;

use super::args::CompareArgs;
use super::contender::{Contender, Source};
use super::fio::SequentialFio;
use super::methods::OwnMethod;
use super::results::{ContenderSample, ContendersAtSize, lines};
use super::safetensors::{SafeTensors, Tensors};
use super::settings::SettingsFound;
use crate::buffer::mapping::{Mapping, Pages};
use crate::disk::{Caches, DiskFile};
use crate::host::facts::{Facts, lack_of_memory, spare_memory};
use crate::measure::outcome::{Status, Trouble, Verdict};
use crate::measure::turns::take_turns;
use crate::pattern::Pattern;

/// Below this length, runs are short and more of them are needed.
const SMALL: u64 = 1 << 20;
const MANY: u32 = 5;
/// Memory is touched in pieces of this size, between which interruption is checked for.
const PIECE: u64 = 256 << 20;

/// All measurements.
#[derive(Debug, Serialize)]
pub(crate) struct Compare {
    schema: u32,
    bench: &'static str,
    version: &'static str,
    /// The commit of the source, if the environment names it.
    #[serde(flatten)]
    pub(crate) facts: Facts,
    /// The machine's settings before any change.
    pub(crate) found: SettingsFound,
    pub(crate) fio: Option<String>,
    pub(crate) processes: u64,
    tensors: Tensors,
    content: String,
    pub(crate) verified_in: &'static str,
    pub(crate) sizes: Vec<ContendersAtSize>,
}

impl Compare {
    pub(crate) fn measure(args: &CompareArgs) -> Result<Self, Failure> {
        let facts = crate::begin(&args.common)?;
        let mut compare = Self {
            schema: 1,
            bench: "compare",
            version: env!("CARGO_PKG_VERSION"),
            found: SettingsFound::now(facts.device()),
            facts,
            fio: SequentialFio::version(),
            processes: args.processes,
            tensors: args.tensors,
            content: SafeTensors::formula(),
            verified_in: if args.verify { "every run" } else { "the first run" },
            sizes: Vec::new(),
        };
        for bytes in &args.sizes {
            let runs = if *bytes < SMALL { args.runs * MANY } else { args.runs };
            let size = match files(args, *bytes) {
                Ok(files) => {
                    let device = compare.facts.device();
                    let caches = Caches::new(args.common.keep_caches);
                    CompareBench { args, files, runs, device, caches }.size()?
                }
                Err(failure) => {
                    Failure::if_interrupted()?;
                    let reason = Some(failure.what().to_owned());
                    ContendersAtSize {
                        bytes: *bytes,
                        seeds: vec![],
                        runs,
                        reason,
                        base: None,
                        rows: vec![],
                    }
                }
            };
            compare.sizes.push(size);
        }
        Ok(compare)
    }

    pub(crate) fn verdict(&self) -> Verdict {
        Verdict::of(self.sizes.iter().flat_map(|size| &size.rows).map(|row| row.outcome.status))
    }
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
    fn size(&self) -> Result<ContendersAtSize, Failure> {
        let contenders = self.contenders();
        let name =
            |contender: &Contender| format!("{}, {}", show_size(self.len()), contender.name());
        let run = |contender: &Contender, run| {
            self.sample(contender, run == 1 || self.args.verify).map(Some)
        };
        let results = take_turns(&contenders, 1..=self.runs, name, run)?;
        let (base, rows) = lines(&contenders, &results, self.total());
        let seeds = self.files.iter().map(|file| file.pattern.seed()).collect();
        Ok(ContendersAtSize { bytes: self.len(), seeds, runs: self.runs, reason: None, base, rows })
    }

    fn contenders(&self) -> Vec<Contender> {
        let chosen = |own: &&OwnMethod| self.args.ways.is_empty() || self.args.ways.contains(own);
        let fio = SequentialFio::for_file(self.len()).map(Contender::Fio);
        let own = OwnMethod::all().filter(chosen).map(Contender::Own);
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
