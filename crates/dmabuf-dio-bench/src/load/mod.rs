// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares the schemes at several sizes.

pub(crate) mod args;
mod page;
mod read_gather;
mod schemes;

use dmabuf_dio_cli::exit::Failure;
use dmabuf_dio_cli::size::show_size;
use serde::Serialize;

use crate::buffer::touch_memory;
use crate::disk::{Caches, DiskFile, IoMode};
use crate::host::facts::{Facts, lack_of_memory};
use crate::measure::outcome::{Outcome, Trouble, Verdict};
use crate::measure::time::Summary;
use crate::measure::turns::{Samples, take_turns};
use crate::pattern::Pattern;
use args::LoadArgs;
pub(crate) use page::page;
use schemes::{HEAP_GATHER, Means, Runner, Scheme};

/// Bytes transferred in the uncounted run.
const FIRST: u64 = 8 << 20;

/// All measurements.
#[derive(Debug, Serialize)]
pub(crate) struct SchemeComparison {
    schema: u32,
    bench: &'static str,
    #[serde(flatten)]
    pub(crate) facts: Facts,
    pub(crate) runs: u32,
    /// The gather size; `None` is the module's default.
    pub(crate) heap_gather: u64,
    pub(crate) module_gather: Option<u64>,
    /// The result of sendfile to a dma-buf, if one could be created.
    pub(crate) sendfile_to_dmabuf: Option<String>,
    pub(crate) sizes: Vec<SchemesAtSize>,
}

/// All schemes at one size.
#[derive(Debug, Serialize)]
pub(crate) struct SchemesAtSize {
    pub(crate) bytes: u64,
    /// Why this size was skipped.
    pub(crate) reason: Option<String>,
    pub(crate) rows: Vec<SchemeResult>,
}

/// The measurement of one scheme.
#[derive(Debug, Serialize)]
pub(crate) struct SchemeResult {
    pub(crate) name: String,
    mode: IoMode,
    #[serde(flatten)]
    pub(crate) outcome: Outcome,
    #[serde(flatten)]
    pub(crate) figures: Option<SchemeFigures>,
}

#[derive(Debug, Serialize)]
pub(crate) struct SchemeFigures {
    pub(crate) allocation_ms: Option<Summary>,
    pub(crate) io_ms: Option<Summary>,
    pub(crate) total_ms: Summary,
    pub(crate) total_cpu_ms: Summary,
    /// Time saved by gather: LOAD without it minus LOAD with it.
    pub(crate) hidden_ms: Option<Summary>,
    /// Whether allocation and I/O were measured separately.
    pub(crate) derived: bool,
    /// Speed relative to the first scheme.
    pub(crate) percent: Option<f64>,
}

/// One run of one scheme.
#[derive(Clone, Copy, Debug)]
struct SchemeSample {
    parts: Option<[f64; 2]>,
    total_ms: f64,
    cpu_ms: f64,
}

impl SchemeComparison {
    pub(crate) fn measure(args: &LoadArgs) -> Result<Self, Failure> {
        let facts = crate::begin(&args.common)?;
        let mut comparison = Self {
            schema: 1,
            bench: "load",
            facts,
            runs: args.runs,
            heap_gather: args.gather.unwrap_or(HEAP_GATHER),
            module_gather: args.gather,
            sendfile_to_dmabuf: sendfile_to_dmabuf(&DiskFile::create(&args.common.dir, 0)?),
            sizes: Vec::new(),
        };
        for (number, bytes) in args.sizes.iter().enumerate() {
            let size = match lack_of_memory(*bytes) {
                Some(lack) => SchemesAtSize::left_out(*bytes, lack),
                None => match DiskFile::create(&args.common.dir, *bytes) {
                    Err(failure) => SchemesAtSize::left_out(*bytes, failure.what().to_owned()),
                    Ok(disk) => {
                        let pattern = Pattern::new(number as u64);
                        disk.write(&pattern)?;
                        let caches = Caches::new(args.common.keep_caches);
                        let bench = SchemeBench { args, disk, pattern, caches };
                        bench.size()?
                    }
                },
            };
            comparison.sizes.push(size);
        }
        Ok(comparison)
    }

    pub(crate) fn verdict(&self) -> Verdict {
        Verdict::of(self.sizes.iter().flat_map(|size| &size.rows).map(|row| row.outcome.status))
    }
}

fn sendfile_to_dmabuf(disk: &DiskFile) -> Option<String> {
    let file = disk.open(IoMode::Buffer).ok()?;
    let result = schemes::sendfile_to_dmabuf(file)?;
    Some(match result {
        Ok(()) => "works".into(),
        Err(errno) => Trouble::failed("sendfile", errno)
            .errno
            .map_or_else(String::new, |errno| errno.to_string()),
    })
}

impl SchemesAtSize {
    fn left_out(bytes: u64, reason: String) -> Self {
        Self { bytes, reason: Some(reason), rows: Vec::new() }
    }
}

struct SchemeBench<'a> {
    args: &'a LoadArgs,
    disk: DiskFile,
    pattern: Pattern,
    caches: Caches,
}

impl SchemeBench<'_> {
    fn size(&self) -> Result<SchemesAtSize, Failure> {
        let (schemes, bytes) = (schemes::all(), self.disk.len());
        touch_memory(bytes);
        let name = |scheme: &Scheme| format!("{}, {}", show_size(bytes), scheme.name());
        // Run 0 is of a part.
        let most = |run| if run == 0 { FIRST } else { u64::MAX };
        let run = |scheme: &Scheme, run| self.sample(*scheme, bytes.min(most(run))).map(Some);
        let results = take_turns(&schemes, 0..=self.args.runs, name, run)?;
        Ok(SchemesAtSize { bytes, reason: None, rows: lines(&schemes, &results) })
    }

    /// Creates the buffer and compares it. Reads into it again if I/O has to be separated from
    /// allocation.
    fn sample(&self, scheme: Scheme, len: u64) -> Result<SchemeSample, Trouble> {
        let runner = Runner { len, gather: self.args.gather };
        let file = self.disk.open(scheme.mode)?;
        self.caches.drop(&self.disk);
        let done = runner.run(scheme, file)?;
        let verify = || {
            let checked = done.buffer.check(self.pattern, 0)?;
            checked.map_err(|difference| Trouble::different(&difference))?;
            done.buffer.poison()
        };
        verify()?;
        let mut parts = done.parts;
        if let Means::Load { by, gather: false } = scheme.means {
            self.caches.drop(&self.disk);
            let io = runner.io_alone(by, &done.buffer, file)?.wall_ms;
            verify()?;
            parts = Some([done.total.wall_ms - io, io]);
        }
        Ok(SchemeSample { parts, total_ms: done.total.wall_ms, cpu_ms: done.total.cpu_ms() })
    }
}

fn lines(schemes: &[Scheme], results: &[Samples<SchemeSample>]) -> Vec<SchemeResult> {
    let samples = |scheme: Scheme| {
        let index = schemes.iter().position(|other| *other == scheme)?;
        results[index].as_deref().ok()
    };
    let mut lines = Vec::new();
    for (scheme, result) in schemes.iter().zip(results) {
        let without = scheme.without_gather().and_then(samples);
        lines.push(SchemeResult {
            name: scheme.name(),
            mode: scheme.mode,
            outcome: Outcome::of(result),
            figures: result.as_ref().ok().and_then(|samples| figures(*scheme, samples, without)),
        });
    }
    let base = lines.first().and_then(|line| Some(line.figures.as_ref()?.total_ms.median));
    for figures in lines.iter_mut().filter_map(|line| line.figures.as_mut()) {
        figures.percent = base.map(|base| base / figures.total_ms.median * 100.0);
    }
    lines
}

/// `without`: the runs of the same LOAD without gather.
fn figures(
    scheme: Scheme,
    samples: &[SchemeSample],
    without: Option<&[SchemeSample]>,
) -> Option<SchemeFigures> {
    let part =
        |index: usize| Summary::of(samples.iter().filter_map(|sample| Some(sample.parts?[index])));
    let hidden = without.and_then(|without| {
        let pairs = without.iter().zip(samples);
        Summary::of(pairs.map(|(without, with)| without.total_ms - with.total_ms))
    });
    Some(SchemeFigures {
        allocation_ms: part(0),
        io_ms: part(1),
        total_ms: Summary::of(samples.iter().map(|sample| sample.total_ms))?,
        total_cpu_ms: Summary::of(samples.iter().map(|sample| sample.cpu_ms))?,
        hidden_ms: hidden,
        derived: matches!(scheme.means, Means::Load { .. }),
        percent: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlap_is_the_time_saved_by_gather() {
        let schemes = schemes::all();
        let sample = |total_ms, parts| SchemeSample { parts, total_ms, cpu_ms: 1.0 };
        let mut results: Vec<Samples<SchemeSample>> =
            vec![Err(Trouble::short("nothing", 0, 1)); schemes.len()];
        let index = schemes.iter().position(|scheme| scheme.without_gather().is_some());
        let index = index.expect("a LOAD with gather");
        results[0] = Ok(vec![sample(20.0, Some([1.0, 19.0]))]);
        results[index - 1] = Ok(vec![sample(10.0, Some([4.0, 6.0])), sample(12.0, None)]);
        results[index] = Ok(vec![sample(7.0, None), sample(8.0, None)]);
        let lines = lines(&schemes, &results);
        let with = lines[index].figures.as_ref().expect("figures");
        // Allocation 4 and I/O 6 against 7 together; 12 against 8.
        assert_eq!(with.hidden_ms.as_ref().expect("hidden").values, [3.0, 4.0]);
        assert!(with.derived && with.allocation_ms.is_none());
        let percent = lines[index - 1].figures.as_ref().and_then(|figures| figures.percent);
        assert_eq!(percent, Some(20.0 / 11.0 * 100.0));
        assert!(lines[1].figures.is_none());
    }
}
