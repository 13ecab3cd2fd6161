// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report of a video capture, and the description beside its file.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use dmabuf_dio_stream::{Clock, Frame, FrameLog, FrameMemory, Gap, Summary, VideoFormat};
use dmabuf_dio_terminal::exit::Failure;
use serde::Serialize;

use super::player::ffmpeg_options;
use crate::show::{Lines, exact, json};
use crate::stream::args::CaptureArgs;
use crate::stream::report::{self, Printed};
use crate::stream::sigmf;

/// Number of gaps in the text.
const SHOWN: usize = 10;

/// What was captured.
#[derive(Debug)]
pub(super) struct Captured<'a> {
    pub(super) node: &'a Path,
    pub(super) name: &'a str,
    pub(super) format: VideoFormat,
    /// Frames per second, as the device says.
    pub(super) rate: Option<f64>,
    pub(super) memory: &'a FrameMemory,
    pub(super) log: &'a FrameLog,
    pub(super) summary: &'a Summary,
    /// Number of requested frames.
    pub(super) asked: Option<u64>,
}

/// A gap.
#[derive(Debug, Serialize)]
struct Missing {
    /// Number of the frame in the file that it is before.
    before_frame: u64,
    /// How many are missing; `None` if that is not known.
    frames: Option<u64>,
}

impl Captured<'_> {
    /// Frames at the other end.
    pub(super) fn frames(&self) -> u64 {
        self.log.frames_in(self.summary.bytes)
    }

    /// Frames per second, by the numbers and times of the first and the last frame.
    fn measured(&self) -> Option<f64> {
        let (first, last) = self.log.ends(self.summary.bytes)?;
        let micros = last.microseconds.checked_sub(first.microseconds).filter(|time| *time > 0)?;
        let frames = last.sequence.checked_sub(first.sequence).filter(|frames| *frames > 0)?;
        Some((frames as f64 / micros as f64 * 1e9).round() / 1e3)
    }

    fn missing(&self) -> Vec<Missing> {
        let listed = self.log.listed();
        let before = |gap: &Gap| {
            if self.format.compressed {
                listed.partition_point(|frame| frame.offset < gap.at) as u64
            } else {
                gap.at / listed.first().map_or(1, |frame| u64::from(frame.bytes.max(1)))
            }
        };
        let one = |gap: &Gap| Missing { before_frame: before(gap), frames: gap.frames };
        self.summary.gaps.iter().map(one).collect()
    }

    fn listed(&self) -> &[Frame] {
        let listed = self.log.listed();
        &listed[..listed.len().min(self.frames() as usize)]
    }
}

/// The output of `--json`.
#[derive(Debug, Serialize)]
struct VideoOutput<'a> {
    schema: u32,
    device: &'a Path,
    name: &'a str,
    /// The file or address at the other end.
    other: &'a str,
    format: &'a VideoFormat,
    rate: Option<f64>,
    measured_rate: Option<f64>,
    memory: &'a FrameMemory,
    frames: u64,
    /// The number of frames that `--frames` requested.
    asked_frames: Option<u64>,
    damaged_frames: u64,
    missing: &'a [Missing],
    clock: Clock,
    first: Option<Frame>,
    last: Option<Frame>,
    #[serde(flatten)]
    summary: &'a Summary,
    description: Option<String>,
    ffmpeg: Option<String>,
    error: Option<&'a str>,
}

/// Prints the report.
pub(super) fn print(
    args: &CaptureArgs,
    captured: &Captured<'_>,
    sidecar: Option<&Path>,
    is_stdout: bool,
    error: Option<&Failure>,
) -> Result<(), Failure> {
    let other = args.to.to_string();
    let ends = captured.log.ends(captured.summary.bytes);
    let missing = captured.missing();
    let json_text = || {
        json(&VideoOutput {
            schema: 1,
            device: captured.node,
            name: captured.name,
            other: &other,
            format: &captured.format,
            rate: captured.rate,
            measured_rate: captured.measured(),
            memory: captured.memory,
            frames: captured.frames(),
            asked_frames: captured.asked,
            damaged_frames: captured.log.damaged(),
            missing: &missing,
            clock: captured.log.clock(),
            first: ends.map(|ends| ends.0),
            last: ends.map(|ends| ends.1),
            summary: captured.summary,
            description: sidecar.map(|path| path.display().to_string()),
            ffmpeg: ffmpeg_options(&captured.format, captured.rate),
            error: error.map(Failure::what),
        })
    };
    let file = args.common.report.as_deref();
    let printed = Printed { quiet: args.common.quiet, json: args.common.json, file, is_stdout };
    let human = || human(captured, &other, sidecar, &missing);
    report::put(&printed, &json_text, &human)
}

fn human(
    captured: &Captured<'_>,
    other: &str,
    sidecar: Option<&Path>,
    missing: &[Missing],
) -> String {
    let Captured { format, summary, log, .. } = captured;
    let mut lines = Lines::new(report::WORDS);
    let rate = captured.rate.map_or_else(String::new, |rate| format!(", {rate} per second"));
    let node = captured.node.display();
    let most = if format.compressed { "at most " } else { "" };
    let bytes = format.frame_bytes;
    let name = captured.name;
    lines.line("device", format!("{node}: {name}; {format}, {most}{bytes} bytes{rate}"));
    lines.line("file", other);
    lines.line("filled by", &summary.source);
    lines.line("emptied by", &summary.sink);
    let measured = captured.measured();
    let measured = measured.map_or_else(String::new, |rate| format!(", {rate} per second"));
    let frames = captured.frames();
    lines.line("moved", format!("{frames} frames, {}{measured}", exact(summary.bytes)));
    let cpu = summary.cpu_seconds.unwrap_or(0.0);
    let part = if summary.seconds > 0.0 { cpu / summary.seconds * 100.0 } else { 0.0 };
    lines.line("time", format!("{:.3} s; CPU {cpu:.3} s, {part:.1} %", summary.seconds));
    lines.line("lost", report::lost(summary));
    for gap in missing.iter().take(SHOWN) {
        let frames = gap.frames.map_or_else(|| "unknown".to_owned(), |frames| frames.to_string());
        lines.line("gap", format!("{frames} frames before frame {}", gap.before_frame));
    }
    if let Some(more) = missing.len().checked_sub(SHOWN + 1) {
        lines.line("", format!("and {} more: see --json", more + 1));
    }
    if log.damaged() > 0 {
        lines.line("damaged", format!("{} frames, which are not in the file", log.damaged()));
    }
    if let Some(path) = sidecar {
        lines.line("described", path.display().to_string());
        if let Some(options) = ffmpeg_options(format, captured.rate) {
            lines.line("play", format!("ffplay {options} {other}"));
        }
    }
    lines.into_text()
}

/// The description of a file of frames.
#[derive(Debug, Serialize)]
struct Description<'a> {
    schema: u32,
    file: String,
    device: &'a Path,
    name: &'a str,
    format: &'a VideoFormat,
    rate: Option<f64>,
    measured_rate: Option<f64>,
    ffmpeg: Option<String>,
    /// `false` also while the capture runs, and if it was killed.
    complete: bool,
    frames: u64,
    bytes: u64,
    lost_frames: u64,
    loss_known: bool,
    damaged_frames: u64,
    missing: Vec<Missing>,
    clock: Clock,
    columns: [&'static str; 4],
}

/// The name of the description of a file: `frames.raw.json`.
pub(in crate::stream) fn path_of(data: &Path) -> PathBuf {
    let mut name = data.as_os_str().to_owned();
    name.push(".json");
    name.into()
}

/// Writes the description, with one line for each of the listed frames.
pub(super) fn describe(data: &Path, captured: &Captured<'_>) -> io::Result<()> {
    let Captured { log, summary, .. } = captured;
    let header = Description {
        schema: 1,
        file: data.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        device: captured.node,
        name: captured.name,
        format: &captured.format,
        rate: captured.rate,
        measured_rate: captured.measured(),
        ffmpeg: ffmpeg_options(&captured.format, captured.rate),
        complete: summary.complete,
        frames: captured.frames(),
        bytes: summary.bytes,
        lost_frames: summary.lost_frames,
        loss_known: summary.loss_known,
        damaged_frames: log.damaged(),
        missing: captured.missing(),
        clock: log.clock(),
        columns: ["sequence", "microseconds", "offset", "bytes"],
    };
    let text = json(&header)?;
    let mut text = text.trim_end().trim_end_matches('}').trim_end().to_owned();
    text.push_str(",\n  \"listed\": [");
    for (number, frame) in captured.listed().iter().enumerate() {
        let comma = if number == 0 { "" } else { "," };
        let Frame { sequence, microseconds, bytes, offset } = frame;
        let _ = write!(text, "{comma}\n    [{sequence}, {microseconds}, {offset}, {bytes}]");
    }
    text.push_str("\n  ]\n}\n");
    sigmf::replace_text(&path_of(data), &text)
}
