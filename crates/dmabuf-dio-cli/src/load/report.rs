// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports of files that were loaded for a command.

use std::fmt::Write as _;
use std::path::Path;

use dmabuf_dio::{Buffer, Refusal, Report};
use dmabuf_dio_terminal::exit::Failure;
use dmabuf_dio_terminal::size::show_size;
use serde::Serialize;

use super::many::{Cost, Ready};
use super::plan::Plan;
use super::verify::Verified;
use crate::args::files::LoadArgs;
use crate::args::url::shown;
use crate::show::{Lines, REPORT, cpu, exact, json, name_of, refused, speed, summary};

/// The output of `--json`.
#[derive(Serialize)]
struct ByPathOutput<'a> {
    schema: u32,
    path: String,
    bytes: u64,
    seconds: f64,
    gb_per_second: f64,
    cpu_seconds: f64,
    storage_bytes: Option<u64>,
    page_cache_grown: Option<i64>,
    linked: usize,
    files: Vec<OutputFile<'a>>,
}

#[derive(Serialize)]
struct OutputFile<'a> {
    file: String,
    offset: u64,
    dma_buf: bool,
    no_dma_buf: Option<Refusal>,
    shared_bytes: u64,
    #[serde(flatten)]
    report: &'a Report,
    verify: Option<&'a Verified>,
}

/// Prints to standard error: standard output belongs to the command.
pub(crate) fn print(
    args: &LoadArgs,
    plan: &Plan,
    path: &Path,
    ready: &[Ready<'_>],
    cost: &Cost,
) -> Result<(), Failure> {
    if args.common.quiet {
        return Ok(());
    }
    let report = if args.common.json {
        json(&output(args, plan, path, ready, cost))?
    } else if args.common.verbose {
        verbose(args, plan, path, ready, cost)
    } else {
        brief(plan, &shown(&args.file).display().to_string(), path, ready, cost)
    };
    std::io::Write::write_all(&mut std::io::stderr(), report.as_bytes())?;
    Ok(())
}

fn rate(cost: &Cost) -> f64 {
    if cost.seconds > 0.0 { cost.bytes as f64 / cost.seconds / 1e9 } else { 0.0 }
}

fn cache_growth(ready: &[Ready<'_>]) -> Option<i64> {
    ready.iter().map(|one| one.report.page_cache_grown).sum()
}

/// Why there is no dma-buf.
fn no_dma_buf(file: &Buffer) -> Option<Refusal> {
    file.dma_buf().err()?.refusals().first().cloned()
}

fn output<'a>(
    args: &LoadArgs,
    plan: &Plan,
    path: &Path,
    ready: &'a [Ready<'_>],
    cost: &Cost,
) -> ByPathOutput<'a> {
    let file = |one: &'a Ready<'_>| OutputFile {
        file: shown(one.load.source()).display().to_string(),
        offset: args.offset,
        dma_buf: one.file.dma_buf().is_ok(),
        no_dma_buf: no_dma_buf(&one.file),
        shared_bytes: one.file.shared_len(),
        report: &one.report,
        verify: one.verified.as_ref(),
    };
    ByPathOutput {
        schema: 1,
        path: path.display().to_string(),
        bytes: cost.bytes,
        seconds: cost.seconds,
        gb_per_second: rate(cost),
        cpu_seconds: cost.cpu_seconds,
        storage_bytes: cost.storage_bytes,
        page_cache_grown: cache_growth(ready),
        linked: plan.links.len(),
        files: ready.iter().map(file).collect(),
    }
}

fn brief(plan: &Plan, source: &str, path: &Path, ready: &[Ready<'_>], cost: &Cost) -> String {
    let devices = match ready.iter().filter(|one| one.file.dma_buf().is_ok()).count() {
        0 => "no dma-buf",
        some if some < ready.len() => "some also as dma-bufs",
        _ => "also as a dma-buf",
    };
    let mut lines = if let ([one], false) = (ready, plan.is_folder()) {
        let what = format!("{source}: {} in memory, {devices}", exact(cost.bytes));
        let report = &one.report;
        summary(&format!("{what} (backend {})", name_of(report)), report)
    } else {
        let of = plan.names() + if plan.is_folder() { plan.links.len() } else { 0 };
        format!(
            "{source}: {} of {of} entries in memory, {}, {devices}\n{}\n{}\n",
            plan.names(),
            exact(cost.bytes),
            time(ready, cost),
            format_args!("CPU {}", cpu(cost.cpu_seconds, cost.bytes)),
        )
    };
    let verified: Vec<_> = ready.iter().filter_map(|one| one.verified.as_ref()).collect();
    if !verified.is_empty() {
        let same = verified.iter().all(|verified| verified.identical);
        let _ = writeln!(lines, "verified: {}", if same { "identical" } else { "DIFFERENT" });
    }
    let _ = writeln!(lines, "path: {}", path.display());
    lines
}

fn time(ready: &[Ready<'_>], cost: &Cost) -> String {
    let storage = cost
        .storage_bytes
        .map_or_else(String::new, |bytes| format!(", {} read from storage", show_size(bytes)));
    let cache = cache_growth(ready)
        .map_or_else(String::new, |grown| format!(", page cache {grown:+} bytes"));
    format!("{}{storage}{cache}", speed(cost.seconds, cost.bytes))
}

fn verbose(args: &LoadArgs, plan: &Plan, path: &Path, ready: &[Ready<'_>], cost: &Cost) -> String {
    let mut lines = Lines::new(REPORT);
    for one in ready {
        let at =
            if args.offset > 0 { format!(", from byte {}", args.offset) } else { String::new() };
        let (report, file) = (&one.report, &one.file);
        lines.line("file", format!("{}{at}", shown(one.load.source()).display()));
        let mut buffer = format!("memfd, {}", exact(file.len()));
        if let (Some(page), Some(huge)) = (report.page_size, report.huge_bytes) {
            buffer += &format!(", pages of {}, {} in huge pages", show_size(page), show_size(huge));
        }
        lines.line("buffer", buffer);
        match file.dma_buf() {
            Ok(buf) => lines.line(
                "dma-buf",
                format!("{}, {} of them shared", exact(buf.len()), exact(file.shared_len())),
            ),
            Err(error) => lines.line(
                "no dma-buf",
                error.refusals().first().map_or_else(|| error.to_string(), refused),
            ),
        }
        lines.report(report);
        if let Some(verified) = &one.verified {
            verified.lines(&mut lines);
        }
        lines.heading("");
    }
    lines.line("all", format!("{}: {}", exact(cost.bytes), time(ready, cost)));
    lines.line("linked", format!("{} entries", plan.links.len()));
    lines.line("path", path.display().to_string());
    lines.into_text()
}
