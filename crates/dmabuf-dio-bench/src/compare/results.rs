// SPDX-License-Identifier: MIT OR Apache-2.0
//! The measurements, by contender.

use serde::Serialize;

use super::contender::Contender;
use super::contract::{LoaderReport, PagesGot};
use super::methods::OwnMethod;
use crate::measure::outcome::Outcome;
use crate::measure::time::Summary;
use crate::measure::turns::Samples;

/// All contenders at one size.
#[derive(Debug, Serialize)]
pub(crate) struct ContendersAtSize {
    /// Length of one file.
    pub(crate) bytes: u64,
    /// Seeds from which a peer computes the content of each file.
    pub(crate) seeds: Vec<u64>,
    pub(crate) runs: u32,
    /// Why this size was skipped.
    pub(crate) reason: Option<String>,
    pub(crate) base: Option<Baseline>,
    pub(crate) rows: Vec<ContenderResult>,
}

/// The reference of `ratio`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Baseline {
    pub(crate) name: String,
    /// Whether it is the disk's maximum and not one of the contenders.
    pub(crate) is_ceiling: bool,
    pub(crate) gb_per_s: f64,
}

/// The measurement of one contender.
#[derive(Debug, Serialize)]
pub(crate) struct ContenderResult {
    pub(crate) name: String,
    /// The name of a built-in method, for `--ways`.
    pub(crate) id: Option<&'static str>,
    #[serde(flatten)]
    pub(crate) outcome: Outcome,
    #[serde(flatten)]
    pub(crate) figures: Option<ContenderFigures>,
    /// Version of a peer.
    pub(crate) version: Option<String>,
    pub(crate) notes: Vec<String>,
}

/// Values of all runs, each over all processes.
#[derive(Debug, Serialize)]
pub(crate) struct ContenderFigures {
    /// Until the last process has finished.
    pub(crate) seconds: Summary,
    pub(crate) gb_per_s: Summary,
    pub(crate) user_seconds: Summary,
    pub(crate) sys_seconds: Summary,
    pub(crate) cpu_seconds_per_gib: Summary,
    pub(crate) release_seconds: Option<Summary>,
    /// Bytes of the files that loading has added to the page cache.
    pub(crate) cache_growth: Option<Summary>,
    /// Page sizes of the last run.
    pub(crate) pages: Option<PagesGot>,
    pub(crate) ratio: Option<f64>,
}

/// One run of one contender.
#[derive(Clone, Debug)]
pub(crate) struct ContenderSample {
    /// One for each process.
    pub(crate) told: Vec<LoaderReport>,
    pub(crate) cached_before: Option<u64>,
    pub(crate) cached_after: Option<u64>,
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
}

/// The results of all contenders, for `bytes` of files.
pub(crate) fn lines(
    contenders: &[Contender],
    results: &[Samples<ContenderSample>],
    bytes: u64,
) -> (Option<Baseline>, Vec<ContenderResult>) {
    let lines =
        contenders.iter().zip(results).map(|(contender, result)| line(contender, result, bytes));
    let mut lines: Vec<ContenderResult> = lines.collect();
    let base = base(contenders, &lines);
    for figures in lines.iter_mut().filter_map(|line| line.figures.as_mut()) {
        figures.ratio = base.as_ref().map(|base| figures.gb_per_s.median / base.gb_per_s);
    }
    (base, lines)
}

/// The fastest run of fio or, without fio, `read()`.
fn base(contenders: &[Contender], lines: &[ContenderResult]) -> Option<Baseline> {
    let named = |is_ceiling: bool, is_it: &dyn Fn(&Contender) -> bool| {
        let rows = contenders.iter().zip(lines).filter(|(contender, _)| is_it(contender));
        let measured = rows.filter_map(|(_, line)| {
            let gb_per_s = line.figures.as_ref()?.gb_per_s.median;
            Some(Baseline { name: line.name.clone(), is_ceiling, gb_per_s })
        });
        measured.max_by(|a, b| a.gb_per_s.total_cmp(&b.gb_per_s))
    };
    named(true, &|contender| matches!(contender, Contender::Fio(fio) if fio.is_ceiling())).or_else(
        || {
            named(
                false,
                &|contender| matches!(contender, Contender::Own(own) if own.id == OwnMethod::READ),
            )
        },
    )
}

fn line(contender: &Contender, result: &Samples<ContenderSample>, bytes: u64) -> ContenderResult {
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
    ContenderResult {
        name: contender.name(),
        id: match contender {
            Contender::Own(own) => Some(own.id),
            _ => None,
        },
        outcome: Outcome::of(result),
        figures: figures(samples, bytes),
        version: told().find_map(|told| told.version.clone()),
        notes,
    }
}

fn figures(samples: &[ContenderSample], bytes: u64) -> Option<ContenderFigures> {
    let summary = |of: &dyn Fn(&ContenderSample) -> f64| Summary::of(samples.iter().map(of));
    let known =
        |of: &dyn Fn(&ContenderSample) -> Option<f64>| Summary::of(samples.iter().filter_map(of));
    let cpu = |sample: &ContenderSample| sample.sum(|told| told.user_seconds + told.sys_seconds);
    let gib = bytes as f64 / f64::from(1 << 30);
    Some(ContenderFigures {
        seconds: summary(&ContenderSample::seconds)?,
        gb_per_s: summary(&|sample| bytes as f64 / 1e9 / sample.seconds())?,
        user_seconds: summary(&|sample| sample.sum(|told| told.user_seconds))?,
        sys_seconds: summary(&|sample| sample.sum(|told| told.sys_seconds))?,
        cpu_seconds_per_gib: summary(&|sample| cpu(sample) / gib)?,
        release_seconds: known(&ContenderSample::release),
        cache_growth: known(&ContenderSample::cache_growth),
        pages: samples.last()?.pages(),
        ratio: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::fio::SequentialFio;
    use crate::measure::outcome::Trouble;

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
        let figures = figures(&[sample(&[1.0, 2.0])], 2 << 30).expect("figures");
        assert_eq!(figures.seconds.values, [2.0]);
        assert!((figures.gb_per_s.median - f64::from(1 << 30) / 1e9).abs() < 1e-9);
        assert_eq!(figures.cpu_seconds_per_gib.values, [0.75]);
        assert_eq!(figures.release_seconds.expect("known").values, [0.25]);
        assert_eq!(figures.cache_growth.expect("known").values, [4096.0]);
    }

    #[test]
    fn ceiling_is_the_fastest_fio_or_else_read() {
        let read = OwnMethod::named(OwnMethod::READ).expect("there is one");
        let mut contenders: Vec<Contender> =
            SequentialFio::for_file(1 << 30).map(Contender::Fio).collect();
        contenders.push(Contender::Own(read));
        let seconds = [4.0, 2.0, 3.0, 4.0, 1.0, 1.0];
        let mut results: Vec<Samples<ContenderSample>> =
            seconds.map(|time| Ok(vec![sample(&[time])])).into();
        let (base, rows) = lines(&contenders, &results, 1 << 30);
        let base = base.expect("a base");
        assert_eq!((base.name.as_str(), base.is_ceiling), ("fio 4 MiB x 8", true));
        assert_eq!(rows[5].figures.as_ref().and_then(|figures| figures.ratio), Some(2.0));
        assert_eq!(rows[5].notes, ["a note"], "once");
        for result in &mut results[..5] {
            *result = Err(Trouble::short("nothing", 0, 1));
        }
        let (base, _) = lines(&contenders, &results, 1 << 30);
        let base = base.expect("a base");
        assert_eq!((base.name.as_str(), base.is_ceiling), ("read() into malloc", false));
    }
}
