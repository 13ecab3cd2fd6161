// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports as text and as JSON.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use dmabuf_dio::{Backend, Dma, Mapped, Mode, Refusal, Report};
use dmabuf_dio_terminal::exit::{Failure, say};
use dmabuf_dio_terminal::size::show_size;
use serde::Serialize;

use crate::args::files::CommonArgs;

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

    /// The remedy for the row above.
    pub(crate) fn remedy(&mut self, remedy: Option<&str>) {
        if let Some(remedy) = remedy {
            self.line("", format!("     try: {remedy}"));
        }
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
        if let Some(place) = place(report) {
            self.line("memory", place);
        }
        self.line("time", speed(report.seconds, report.bytes));
        self.line("CPU", cpu(report.cpu_seconds, report.bytes));
        self.line(
            "page cache",
            match report.page_cache_grown {
                Some(grown) => format!("{grown:+} bytes"),
                None if matches!(report.mode, Mode::Fetched | Mode::Sent) => {
                    "not looked at: there is no file".into()
                }
                None => "unknown: the kernel does not count for this file".into(),
            },
        );
        if let Some(fetched) = &report.fetched {
            let (requests, again) = (fetched.requests, fetched.retries);
            let bytes = exact(fetched.bytes);
            self.line("fetched", format!("{bytes} by {requests} requests, {again} of them again"));
        }
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

/// Where the memory is, and whether it is locked, if that was asked for.
pub(crate) fn place(report: &Report) -> Option<String> {
    let of_node = |(node, bytes): (&u32, &u64)| format!("{} on node {node}", show_size(*bytes));
    let numa = report.numa.map(|numa| match &report.nodes {
        Some(nodes) => {
            let nodes: Vec<_> = nodes.iter().map(of_node).collect();
            format!("numa {numa}: {}", nodes.join(", "))
        }
        None => format!("numa {numa}: the kernel does not say where it is"),
    });
    let locked = report.locked.then(|| "never swapped out".to_owned());
    let texts: Vec<_> = numa.into_iter().chain(locked).collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}

/// A time, in the unit that fits.
pub(crate) fn duration(seconds: f64) -> String {
    match seconds {
        1.0.. => format!("{seconds:.2} s"),
        1e-3.. => format!("{:.1} ms", seconds * 1e3),
        _ => format!("{:.0} us", seconds * 1e6),
    }
}

/// A time, and the rate at which the bytes were moved in it.
pub(crate) fn speed(seconds: f64, bytes: u64) -> String {
    let rate = if seconds > 0.0 { bytes as f64 / seconds } else { 0.0 };
    let rate = if rate >= 1e8 {
        format!("{:.2} GB/s", rate / 1e9)
    } else {
        format!("{:.2} MB/s", rate / 1e6)
    };
    format!("{}, {rate}", duration(seconds))
}

/// CPU time, and CPU time per GiB if there are enough bytes to compute it.
pub(crate) fn cpu(seconds: f64, bytes: u64) -> String {
    /// The fixed cost of a smaller transfer is most of its cost.
    const ENOUGH: u64 = 64 << 20;
    let time = duration(seconds);
    if bytes < ENOUGH {
        return time;
    }
    let per_gib = seconds / (bytes as f64 / f64::from(1 << 30));
    format!("{time} ({per_gib:.3} s per GiB)")
}

/// The name of the backend that moved the bytes.
pub(crate) fn name_of(report: &Report) -> &'static str {
    report.backend.map_or("none", Backend::name)
}

/// A short report of a transfer: speed, cost and the most useful hint.
pub(crate) fn summary(what: &str, report: &Report) -> String {
    let mut text = format!(
        "{what}\n{}, {}\nCPU {}, {} copied\n",
        speed(report.seconds, report.bytes),
        mode(report.mode),
        cpu(report.cpu_seconds, report.bytes),
        exact(report.copied_bytes),
    );
    if let Some(place) = place(report) {
        let _ = writeln!(text, "memory: {place}");
    }
    if let Some(help) = best_help(report) {
        let _ = writeln!(text, "{help}");
    }
    text
}

/// The most useful hint: why this transfer was not direct, or else why the best backend is
/// unavailable.
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

/// Why no backend is available, as JSON.
#[derive(Debug, Serialize)]
struct FailureOutput<'a> {
    schema: u32,
    error: &'a str,
    hint: &'a str,
    refusals: &'a [Refusal],
}

/// Prints the reasons of all backends, if the options ask for details. `output`: whether standard output
/// is free.
pub(crate) fn refusals(failure: &Failure, common: &CommonArgs, output: bool) {
    let (error, hint, refusals) = (failure.what(), failure.hint(), failure.refusals());
    if refusals.is_empty() {
        // Other failures may come after a report.
    } else if common.json {
        let Ok(text) = json(&FailureOutput { schema: 1, error, hint, refusals }) else { return };
        // A failure to print does not change the exit code.
        let _ = if output {
            io::stdout().write_all(text.as_bytes())
        } else {
            io::stderr().write_all(text.as_bytes())
        };
    } else if common.verbose {
        for refusal in refusals {
            say(&format!("not used    {}", refused(refusal)));
        }
    }
}

/// Bytes in hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
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
        Mode::Fetched => "fetched: no file and no page cache had it",
        Mode::Sent => "sent: no file and no page cache had it",
        Mode::PageCache => "from the page cache: storage was not read",
        _ => "in a way that the kernel does not report",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_fit_the_size_of_a_transfer() {
        assert_eq!(speed(0.182, 548_105_171), "182.0 ms, 3.01 GB/s");
        assert_eq!(speed(2.5, 1 << 30), "2.50 s, 0.43 GB/s");
        assert_eq!(speed(0.000_2, 6000), "200 us, 30.00 MB/s");
        assert_eq!(speed(0.0, 0), "0 us, 0.00 MB/s");
        assert_eq!(cpu(0.000_6, 6000), "600 us");
        assert_eq!(cpu(0.25, 1 << 30), "250.0 ms (0.250 s per GiB)");
    }
}
