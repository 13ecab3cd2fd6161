// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tells what is kept, and how it was loaded.

use std::io::Write as _;
use std::path::PathBuf;

use dmabuf_dio::Report;
use dmabuf_dio_keep::Kept;
use dmabuf_dio_terminal::exit::Failure;
use serde::Serialize;

use crate::args::keep::KeepArgs;
use crate::show::{self, Lines, REPORT, cpu, exact, speed};

/// The output of `--json`.
#[derive(Serialize)]
struct Output<'a> {
    schema: u32,
    kept: Vec<One<'a>>,
}

#[derive(Serialize)]
struct One<'a> {
    name: &'a str,
    path: String,
    source: &'a str,
    bytes: u64,
    /// Seconds since 1970.
    since: u64,
    loaded: bool,
    left_out: &'a [PathBuf],
    reports: &'a [Report],
}

impl<'a> One<'a> {
    fn of(kept: &'a Kept) -> Self {
        Self {
            name: kept.name.as_str(),
            path: kept.path.display().to_string(),
            source: &kept.source,
            bytes: kept.length,
            since: kept.since,
            loaded: kept.loaded,
            left_out: &kept.left_out,
            reports: &kept.reports,
        }
    }
}

pub(crate) fn json(kept: &[Kept]) -> Result<(), Failure> {
    let text = show::json(&Output { schema: 1, kept: kept.iter().map(One::of).collect() })?;
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}

pub(crate) fn print(args: &KeepArgs, kept: &Kept) -> Result<(), Failure> {
    if args.quiet {
        return Ok(());
    }
    let text = if args.verbose { verbose(kept) } else { brief(kept) };
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}

fn brief(kept: &Kept) -> String {
    let (name, path) = (&kept.name, kept.path.display());
    if !kept.loaded {
        return format!("{name}: {} are kept already\npath: {path}\n", exact(kept.length));
    }
    let sum = |of: fn(&Report) -> f64| kept.reports.iter().map(of).sum::<f64>();
    let (seconds, busy) = (sum(|report| report.seconds), sum(|report| report.cpu_seconds));
    let mut text = format!(
        "{name}: {} loaded\n{}\nCPU {}\n",
        exact(kept.length),
        speed(seconds, kept.length),
        cpu(busy, kept.length)
    );
    let noted = kept.reports.iter().find_map(|report| report.notes.first());
    if let Some(note) = noted {
        text += &format!("note: {note}\n");
    }
    for place in &kept.left_out {
        text += &format!("left out: {}\n", place.display());
    }
    text + &format!("path: {path}\n")
}

fn verbose(kept: &Kept) -> String {
    let mut lines = Lines::new(REPORT);
    for report in &kept.reports {
        lines.report(report);
        lines.heading("");
    }
    for place in &kept.left_out {
        lines.line("left out", place.display().to_string());
    }
    lines.line("name", kept.name.as_str());
    lines.line("source", &kept.source);
    lines.line("kept", exact(kept.length));
    lines.line("loaded", if kept.loaded { "now" } else { "before" });
    lines.line("path", kept.path.display().to_string());
    lines.into_text()
}
