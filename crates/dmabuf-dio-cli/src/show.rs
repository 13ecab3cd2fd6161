// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports as text and as JSON.

use std::fmt::Write as _;
use std::io;

use dmabuf_dio::{Backend, Dma, Mapped, Mode, Refusal, Report};
use serde::Serialize;

use crate::size::show_size;

/// Length of the longest label in reports of transfers.
pub(crate) const REPORT: usize = "page cache".len();

/// Lines of a label and a text.
#[derive(Debug)]
pub(crate) struct Lines {
    text: String,
    width: usize,
}

impl Lines {
    /// Lines whose longest label has this length.
    pub(crate) fn new(longest: usize) -> Self {
        Self { text: String::new(), width: longest + 2 }
    }

    pub(crate) fn line(&mut self, label: &str, text: impl AsRef<str>) {
        let width = self.width;
        let _ = writeln!(self.text, "{label:width$}{}", text.as_ref());
    }

    /// An empty line and a heading.
    pub(crate) fn heading(&mut self, text: &str) {
        let gap = if self.text.is_empty() { "" } else { "\n" };
        let _ = writeln!(self.text, "{gap}{text}");
    }

    pub(crate) fn into_text(self) -> String {
        self.text
    }

    /// The report of a transfer.
    pub(crate) fn report(&mut self, report: &Report) {
        self.line("backend", name_of(report));
        self.line("moved", format!("{} {}", exact(report.bytes), mode(report.mode)));
        self.line("evidence", &report.evidence);
        self.line("time", format!("{:.4} s, {:.2} GB/s", report.seconds, report.gb_per_second));
        let per_gib = report.cpu_seconds / (report.bytes as f64 / f64::from(1 << 30));
        self.line("CPU", format!("{:.4} s, {per_gib:.3} s per GiB", report.cpu_seconds));
        self.line(
            "page cache",
            report.page_cache_grown.map_or_else(
                || "unknown: the kernel does not count for this file".into(),
                |grown| format!("{grown:+} bytes"),
            ),
        );
        if let Some(dma) = &report.dma {
            self.line("DMA", mapped(dma));
        }
        for note in &report.notes {
            self.line("note", note);
        }
        for refusal in &report.refusals {
            self.line("not used", refused(refusal));
        }
    }
}

/// How memory is mapped for a disk.
pub(crate) fn mapped(dma: &Dma) -> String {
    let text = match dma.mapped {
        Mapped::Never => "no IOMMU translates addresses for the disk: nothing needs to be mapped",
        Mapped::Once => "each buffer is mapped for the disk once",
        Mapped::PerRequest => "each request is mapped for the disk",
        _ => "unknown",
    };
    dma.reason.as_ref().map_or_else(|| text.into(), |reason| format!("{text}: {reason}"))
}

/// What moved the bytes.
pub(crate) fn name_of(report: &Report) -> &'static str {
    report.backend.map_or("none", Backend::name)
}

/// A short report of a transfer: speed, cost and the most useful hint.
pub(crate) fn summary(what: &str, report: &Report) -> String {
    let per_gib = report.cpu_seconds / (report.bytes as f64 / f64::from(1 << 30));
    let mut text = format!(
        "{what}\n{:.4} s, {:.2} GB/s, {}\nCPU {:.4} s ({per_gib:.3} s per GiB), {} copied\n",
        report.seconds,
        report.gb_per_second,
        mode(report.mode),
        report.cpu_seconds,
        exact(report.copied_bytes),
    );
    if let Some(help) = best_help(report) {
        let _ = writeln!(text, "{help}");
    }
    text
}

/// The most useful hint: why this transfer was not direct, or else what the best backend lacks.
fn best_help(report: &Report) -> Option<String> {
    let note = report.notes.first().map(|note| format!("note: {note}"));
    let better = report.refusals.iter().find_map(|refusal| {
        let remedy = refusal.remedy.as_ref()?;
        Some(format!("better: {remedy} (for backend {})", refusal.backend))
    });
    if report.mode == Mode::Direct { better.or(note) } else { note.or(better) }
}

/// A report as JSON.
pub(crate) fn json(what: &impl Serialize) -> io::Result<String> {
    Ok(serde_json::to_string_pretty(what)? + "\n")
}

/// A number of bytes, exact and rounded.
pub(crate) fn exact(bytes: u64) -> String {
    if bytes < 1024 {
        format!("{bytes} bytes")
    } else {
        format!("{bytes} bytes ({})", show_size(bytes))
    }
}

/// A refusal and its remedy.
pub(crate) fn refused(refusal: &Refusal) -> String {
    let errno = refusal.errno.map_or_else(String::new, |errno| format!(": {errno}"));
    let remedy = refusal.remedy.as_ref().map_or_else(String::new, |text| format!("; try: {text}"));
    format!("{refusal}{errno}{remedy}")
}

fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Direct => "direct: bypassing the page cache",
        Mode::Buffered => "buffered: through the page cache",
        Mode::Mixed => "partly direct, partly through the page cache",
        Mode::PageCache => "from the page cache: storage was not read",
        _ => "in a way that the kernel does not report",
    }
}
