// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports of streams, as text and as JSON.

use std::io::Write as _;
use std::path::Path;

use dmabuf_dio_stream::{Channel, Gap, Loss, Summary};
use serde::Serialize;

use super::args::StreamArgs;
use super::device::Chosen;
use crate::exit::Failure;
use crate::show::{Lines, exact, json};

/// Number of gaps in the text.
const SHOWN: usize = 10;
/// Length of the longest label.
const WORDS: usize = "emptied by".len();

/// The output of `--json`.
#[derive(Debug, Serialize)]
struct Output<'a> {
    schema: u32,
    device: &'a str,
    /// The file or address at the other end.
    other: &'a str,
    channels: &'a [Channel],
    frame_bytes: u64,
    rate: Option<f64>,
    frames: u64,
    /// The number of frames that `--samples` or `--seconds` asked for.
    asked_frames: Option<u64>,
    #[serde(flatten)]
    summary: &'a Summary,
    description: Option<String>,
    /// Why the command fails.
    error: Option<String>,
}

/// The two ends of a stream and the description of the file.
pub(crate) struct Report<'a> {
    pub(crate) chosen: &'a Chosen,
    /// The file or address at the other end.
    pub(crate) other: &'a str,
    pub(crate) sidecar: Option<&'a Path>,
    /// The label of what was lost.
    pub(crate) lost: &'a str,
}

/// Prints a summary.
pub(crate) fn print(
    args: &StreamArgs,
    end: &Report<'_>,
    summary: &Summary,
    error: Option<&Failure>,
) -> Result<(), Failure> {
    if args.quiet {
        return Ok(());
    }
    let chosen = end.chosen;
    let frames = summary.bytes / chosen.frame();
    let text = if args.json {
        let output = Output {
            schema: 1,
            device: chosen.device.name(),
            other: end.other,
            channels: &chosen.channels,
            frame_bytes: chosen.frame(),
            rate: chosen.rate,
            frames,
            asked_frames: chosen.frames(args),
            summary,
            description: end.sidecar.map(|path| path.display().to_string()),
            error: error.map(|failure| failure.what().to_owned()),
        };
        json(&output)?
    } else {
        human(end, summary, frames)
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

fn human(end: &Report<'_>, summary: &Summary, frames: u64) -> String {
    let chosen = end.chosen;
    let mut lines = Lines::new(WORDS);
    lines.line("device", chosen.describe());
    lines.line("file", end.other);
    lines.line("filled by", &summary.source);
    lines.line("emptied by", &summary.sink);
    lines.line("moved", format!("{frames} frames, {}", exact(summary.bytes)));
    let mib = summary.bytes as f64 / f64::from(1 << 20);
    let speed = if summary.seconds > 0.0 { mib / summary.seconds } else { 0.0 };
    lines.line("time", format!("{:.3} s, {speed:.1} MiB/s", summary.seconds));
    if let Some(cpu) = summary.cpu_seconds {
        let part = if summary.seconds > 0.0 { cpu / summary.seconds } else { 0.0 };
        lines.line("CPU", format!("{cpu:.3} s, {:.1} %", part * 100.0));
    }
    lines.line(end.lost, lost(summary));
    for gap in summary.gaps.iter().take(SHOWN) {
        let label = if gap.kind == Loss::Underrun { "underrun" } else { "gap" };
        lines.line(label, place(gap, chosen.frame()));
    }
    if let Some(more) = summary.gaps.len().checked_sub(SHOWN + 1) {
        lines.line("", format!("and {} more: see --json", more + 1));
    }
    if let Some(path) = end.sidecar {
        lines.line("described", format!("{} (SigMF)", path.display()));
    }
    lines.into_text()
}

/// Says how much was lost.
pub(crate) fn lost(summary: &Summary) -> String {
    let unknown = summary.gaps.iter().any(|gap| gap.frames.is_none());
    match summary.gaps.len() {
        0 if summary.loss_known => "nothing".to_owned(),
        0 => "not known: the device does not report it".to_owned(),
        gaps => format!(
            "{}{} frames in {gaps} gaps",
            if unknown { "at least " } else { "" },
            summary.lost_frames
        ),
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
