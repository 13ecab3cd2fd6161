// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports of streams, as text and as JSON.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use dmabuf_dio_stream::{Channel, Converted, Gap, Loss, RingUse, Setting, Summary};
use dmabuf_dio_terminal::exit::{FAILED, Failure};
use dmabuf_dio_terminal::size::show_size;
use serde::Serialize;
use serde_json::Value;

use super::device::Chosen;
use super::loss::lost;
use super::rotate::Piece;
use super::setup;
use crate::args::streams::{ReplayArgs, ReportArgs, StreamArgs};
use crate::show::{Lines, exact, json};

/// Number of gaps in the text.
const SHOWN: usize = 10;
/// Length of the longest label.
pub(super) const WORDS: usize = "emptied by".len();

/// The output of `--json`.
#[derive(Debug, Serialize)]
struct StreamOutput<'a> {
    schema: u32,
    device: &'a str,
    /// The file or address at the other end.
    other: &'a str,
    channels: &'a [Channel],
    frame_bytes: u64,
    rate: Option<f64>,
    /// `None` if that is not known, nor the bytes.
    frames: Option<u64>,
    /// The number of frames that `--samples` or `--seconds` requested.
    asked_frames: Option<u64>,
    settings: &'a [Setting],
    trigger: Option<&'a str>,
    ring_seconds: Option<RingSeconds>,
    #[serde(flatten)]
    summary: &'a Summary,
    description: Option<String>,
    /// The samples that the CPU converted.
    conversion: Option<Conversion<'a>>,
    /// The files of a recording that was cut.
    files: Option<&'a [Piece]>,
    /// Why the command fails.
    error: Option<String>,
}

/// A conversion, and the bytes that went through the CPU.
#[derive(Debug, Serialize)]
struct Conversion<'a> {
    #[serde(flatten)]
    converted: &'a Converted,
    from_bytes: u64,
    to_bytes: u64,
}

impl<'a> Conversion<'a> {
    fn of(converted: &'a Converted) -> Self {
        let from_bytes = converted.frames * converted.from_frame_bytes;
        let to_bytes = converted.frames * converted.to_frame_bytes;
        Self { converted, from_bytes, to_bytes }
    }
}

/// The seconds of samples that the blocks hold, if the device has a rate.
#[derive(Debug, Serialize)]
struct RingSeconds {
    at_start: f64,
    at_end: f64,
    most: f64,
}

impl RingSeconds {
    fn of(ring: RingUse, chosen: &Chosen) -> Option<Self> {
        let bytes_per_second = chosen.rate? * chosen.frame() as f64;
        let seconds = |blocks: usize| blocks as f64 * ring.block_bytes as f64 / bytes_per_second;
        Some(Self {
            at_start: seconds(ring.blocks_at_start),
            at_end: seconds(ring.blocks_at_end),
            most: seconds(ring.most_blocks),
        })
    }
}

/// For example `16 blocks of 976 KiB (2.0 s), grew to 30 (3.7 s), at most 500 (62 s)`.
fn describe(ring: RingUse, seconds: Option<&RingSeconds>) -> String {
    let RingUse { block_bytes, blocks_at_start, blocks_at_end, most_blocks } = ring;
    let with = |of: fn(&RingSeconds) -> f64| {
        seconds.map_or_else(String::new, |seconds| format!(" ({:.1} s)", of(seconds)))
    };
    let size = show_size(block_bytes);
    let mut text = format!("{blocks_at_start} blocks of {size}{}", with(|all| all.at_start));
    if blocks_at_end > blocks_at_start {
        text += &format!(", grew to {blocks_at_end}{}", with(|all| all.at_end));
    }
    if most_blocks > blocks_at_start {
        text += &format!(", at most {most_blocks}{}", with(|all| all.most));
    }
    text
}

/// The two ends of a stream and the description of the file.
pub(crate) struct Report<'a> {
    pub(crate) chosen: &'a Chosen,
    /// The file or address at the other end.
    pub(crate) other: &'a str,
    pub(crate) sidecar: Option<&'a Path>,
    pub(crate) converted: Option<Converted>,
    pub(crate) pieces: Option<&'a [Piece]>,
    /// The label of the losses.
    pub(crate) lost: &'static str,
    /// The samples go to standard output, and the report to standard error.
    pub(crate) is_stdout: bool,
    /// Whether the summary has the number of moved bytes. Otherwise the number is unknown.
    pub(crate) is_moved_known: bool,
}

impl<'a> Report<'a> {
    pub(super) fn of_replay(args: &'a ReplayArgs, chosen: &'a Chosen) -> Self {
        Self {
            chosen,
            other: args.file.to_str().unwrap_or("a file"),
            sidecar: None,
            converted: None,
            pieces: None,
            lost: "underruns",
            is_stdout: false,
            is_moved_known: true,
        }
    }
}

/// Prints a report, unless `--quiet` is given, and writes it to the requested file. `human` formats
/// it as text. `is_stdout`: the samples go to standard output, and the report to standard error.
pub(super) fn put(
    args: &ReportArgs,
    is_stdout: bool,
    json_text: &dyn Fn() -> io::Result<String>,
    human: &dyn Fn() -> String,
) -> Result<(), Failure> {
    let written = args.file.as_ref().map_or(Ok(()), |path| {
        let written = json_text().and_then(|text| fs::write(path, text));
        written.map_err(|error| cannot_write(path, &error))
    });
    if !args.quiet {
        let text = if args.json { json_text()? } else { human() };
        if is_stdout {
            // Standard error may be closed, as for messages.
            let _ = io::stderr().write_all(text.as_bytes());
        } else {
            io::stdout().write_all(text.as_bytes())?;
        }
    }
    written
}

pub(super) fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    let what = format!("{}: cannot write the report: {error}", path.display());
    Failure::new(FAILED, what, "check the folder and its free space")
}

/// Prints a summary.
pub(crate) fn print(
    args: &StreamArgs,
    end: &Report<'_>,
    summary: &Summary,
    error: Option<&Failure>,
) -> Result<(), Failure> {
    let chosen = end.chosen;
    let frames = summary.bytes / chosen.frame();
    let json_text = || {
        let output = StreamOutput {
            schema: 1,
            device: chosen.device.name(),
            other: end.other,
            channels: &chosen.channels,
            frame_bytes: chosen.frame(),
            rate: chosen.rate,
            frames: end.is_moved_known.then_some(frames),
            asked_frames: chosen.frames(args),
            settings: chosen.setup.settings(),
            trigger: chosen.setup.trigger(),
            ring_seconds: RingSeconds::of(summary.ring, chosen),
            summary,
            description: end.sidecar.map(|path| path.display().to_string()),
            conversion: end.converted.as_ref().map(Conversion::of),
            files: end.pieces,
            error: error.map(|failure| failure.what().to_owned()),
        };
        if end.is_moved_known {
            return json(&output);
        }
        let mut output = serde_json::to_value(&output)?;
        output["bytes"] = Value::Null;
        json(&output)
    };
    put(&args.report, end.is_stdout, &json_text, &|| human(end, summary))
}

fn human(end: &Report<'_>, summary: &Summary) -> String {
    let chosen = end.chosen;
    let mut lines = Lines::new(WORDS);
    lines.line("device", chosen.describe());
    for setting in chosen.setup.settings() {
        lines.line("set", setup::describe(setting));
    }
    if let Some(name) = chosen.setup.trigger() {
        lines.line("trigger", name);
    }
    lines.line("file", end.other);
    lines.line("filled by", &summary.source);
    lines.line("emptied by", &summary.sink);
    if let Some(converted) = &end.converted {
        let Conversion { to_bytes, .. } = Conversion::of(converted);
        let Converted { from, to, .. } = converted;
        lines.line("converted", format!("{from} to {to}, {} by the CPU", exact(to_bytes)));
    }
    if let Some(pieces) = end.pieces.filter(|pieces| !pieces.is_empty()) {
        let (first, last) = (&pieces[0], &pieces[pieces.len() - 1]);
        lines.line("files", format!("{}: {first} to {last}", pieces.len()));
    }
    if summary.ring.blocks_at_start > 0 {
        let seconds = RingSeconds::of(summary.ring, chosen);
        lines.line("ring", describe(summary.ring, seconds.as_ref()));
    }
    if end.is_moved_known {
        outcome(&mut lines, summary, chosen.frame());
    } else {
        lines.line("moved", "not known: the device repeats the file by itself, and does not count");
        lines.line("time", format!("{:.3} s", summary.seconds));
    }
    costs(&mut lines, summary, chosen.frame(), end.lost);
    if let Some(path) = end.sidecar {
        lines.line("described", format!("{} (SigMF)", path.display()));
    }
    lines.into_text()
}

/// Adds how much was moved, and how fast.
fn outcome(lines: &mut Lines, summary: &Summary, frame: u64) {
    let frames = summary.bytes / frame;
    lines.line("moved", format!("{frames} frames, {}", exact(summary.bytes)));
    let mib = summary.bytes as f64 / f64::from(1 << 20);
    let speed = if summary.seconds > 0.0 { mib / summary.seconds } else { 0.0 };
    lines.line("time", format!("{:.3} s, {speed:.1} MiB/s", summary.seconds));
}

/// Adds the cost and the losses.
fn costs(lines: &mut Lines, summary: &Summary, frame: u64, lost_label: &str) {
    if let Some(cpu) = summary.cpu_seconds {
        let part = if summary.seconds > 0.0 { cpu / summary.seconds } else { 0.0 };
        lines.line("CPU", format!("{cpu:.3} s, {:.1} %", part * 100.0));
    }
    lines.line(lost_label, lost(summary));
    let gap = |gap: &Gap| {
        let label = if gap.kind == Loss::Underrun { "underrun" } else { "gap" };
        (label, place(gap, frame))
    };
    some(lines, summary.gaps.iter().map(gap));
}

/// The first of many rows.
pub(super) fn some(
    lines: &mut Lines,
    mut rows: impl ExactSizeIterator<Item = (&'static str, String)>,
) {
    for (label, text) in rows.by_ref().take(SHOWN) {
        lines.line(label, text);
    }
    if rows.len() > 0 {
        lines.line("", format!("and {} more: see --json", rows.len()));
    }
}

fn place(gap: &Gap, frame: u64) -> String {
    let frames = gap.frames.map_or_else(|| "unknown".to_owned(), |frames| frames.to_string());
    let (from, to) = (gap.at / frame, gap.to / frame);
    if from == to {
        format!("{frames} frames before frame {from}")
    } else {
        format!("{frames} frames between frames {from} and {to}")
    }
}
