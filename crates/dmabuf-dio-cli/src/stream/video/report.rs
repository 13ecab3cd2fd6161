// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report of a video capture, and the description beside its file.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use dmabuf_dio_stream::{Clock, Frame, FrameLog, FrameMemory, Gap, Summary, VideoFormat};
use dmabuf_dio_terminal::exit::Failure;
use serde::Serialize;

use super::player::ffmpeg_options;
use crate::args::video::VideoArgs;
use crate::show::{Lines, exact, json};
use crate::stream::atomic::replace_text;
use crate::stream::loss::lost;
use crate::stream::report::{WORDS, put, some};

/// The device and the format of a capture.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) node: PathBuf,
    pub(super) name: String,
    pub(super) format: VideoFormat,
    /// Frames per second, as the device says.
    pub(super) rate: Option<f64>,
    pub(super) memory: FrameMemory,
    /// Number of requested frames.
    pub(super) asked: Option<u64>,
}

/// The captured frames.
#[derive(Debug)]
pub(super) struct Captured<'a> {
    pub(super) facts: &'a Facts,
    pub(super) log: &'a FrameLog,
    pub(super) summary: &'a Summary,
}

/// A gap.
#[derive(Debug, Serialize)]
struct Missing {
    /// Index in the file of the frame after the gap.
    before_frame: u64,
    /// The number of missing frames; `None` if it is unknown.
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
            if self.facts.format.compressed {
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

/// Fields that the output of `--json` and the description share.
#[derive(Debug, Serialize)]
struct Told<'a> {
    schema: u32,
    device: &'a Path,
    name: &'a str,
    format: &'a VideoFormat,
    rate: Option<f64>,
    measured_rate: Option<f64>,
    frames: u64,
    damaged_frames: u64,
    missing: Vec<Missing>,
    clock: Clock,
    ffmpeg: Option<String>,
}

impl<'a> Told<'a> {
    fn of(captured: &Captured<'a>) -> Self {
        let Captured { facts, log, .. } = captured;
        Self {
            schema: 1,
            device: &facts.node,
            name: &facts.name,
            format: &facts.format,
            rate: facts.rate,
            measured_rate: captured.measured(),
            frames: captured.frames(),
            damaged_frames: log.damaged(),
            missing: captured.missing(),
            clock: log.clock(),
            ffmpeg: ffmpeg_options(&facts.format, facts.rate),
        }
    }
}

/// The output of `--json`.
#[derive(Debug, Serialize)]
struct VideoOutput<'a> {
    #[serde(flatten)]
    told: Told<'a>,
    /// The file or address at the other end.
    other: &'a str,
    memory: &'a FrameMemory,
    /// The number of frames that `--frames` requested.
    asked_frames: Option<u64>,
    first: Option<Frame>,
    last: Option<Frame>,
    #[serde(flatten)]
    summary: &'a Summary,
    description: Option<String>,
    error: Option<&'a str>,
}

/// The description of a file of frames.
#[derive(Debug, Serialize)]
struct Description<'a> {
    file: String,
    #[serde(flatten)]
    told: Told<'a>,
    /// `false` also while the capture runs, and if it was killed.
    complete: bool,
    bytes: u64,
    lost_frames: u64,
    loss_known: bool,
    columns: [&'static str; 4],
}

/// Prints the report.
pub(super) fn print(
    args: &VideoArgs,
    captured: &Captured<'_>,
    sidecar: Option<&Path>,
    is_stdout: bool,
    error: Option<&Failure>,
) -> Result<(), Failure> {
    let other = args.destination.to.to_string();
    let ends = captured.log.ends(captured.summary.bytes);
    let json_text = || {
        json(&VideoOutput {
            told: Told::of(captured),
            other: &other,
            memory: &captured.facts.memory,
            asked_frames: captured.facts.asked,
            first: ends.map(|ends| ends.0),
            last: ends.map(|ends| ends.1),
            summary: captured.summary,
            description: sidecar.map(|path| path.display().to_string()),
            error: error.map(Failure::what),
        })
    };
    put(&args.report, is_stdout, &json_text, &|| human(captured, &other, sidecar))
}

fn human(captured: &Captured<'_>, other: &str, sidecar: Option<&Path>) -> String {
    let Captured { facts: Facts { node, name, format, rate, .. }, log, summary } = captured;
    let mut lines = Lines::new(WORDS);
    let per_second =
        |rate: Option<f64>| rate.map_or_else(String::new, |rate| format!(", {rate} per second"));
    let (node, bytes, shown) = (node.display(), format.frame_bytes, per_second(*rate));
    let most = if format.compressed { "at most " } else { "" };
    lines.line("device", format!("{node}: {name}; {format}, {most}{bytes} bytes{shown}"));
    lines.line("file", other);
    lines.line("filled by", &summary.source);
    lines.line("emptied by", &summary.sink);
    let (frames, measured) = (captured.frames(), per_second(captured.measured()));
    lines.line("moved", format!("{frames} frames, {}{measured}", exact(summary.bytes)));
    let cpu = summary.cpu_seconds.unwrap_or(0.0);
    let part = if summary.seconds > 0.0 { cpu / summary.seconds * 100.0 } else { 0.0 };
    lines.line("time", format!("{:.3} s; CPU {cpu:.3} s, {part:.1} %", summary.seconds));
    lines.line("lost", lost(summary));
    let gap = |Missing { before_frame, frames }: Missing| {
        let frames = frames.map_or_else(|| "unknown".to_owned(), |frames| frames.to_string());
        ("gap", format!("{frames} frames before frame {before_frame}"))
    };
    some(&mut lines, captured.missing().into_iter().map(gap));
    if log.damaged() > 0 {
        lines.line("damaged", format!("{} frames, which are not in the file", log.damaged()));
    }
    if let Some(path) = sidecar {
        lines.line("described", path.display().to_string());
        if let Some(options) = ffmpeg_options(format, *rate) {
            lines.line("play", format!("ffplay {options} {other}"));
        }
    }
    lines.into_text()
}

/// The name of the description of a file: `frames.raw.json`.
pub(super) fn path_of(data: &Path) -> PathBuf {
    let mut name = data.as_os_str().to_owned();
    name.push(".json");
    name.into()
}

/// Writes the description, with one line for each of the listed frames.
pub(super) fn describe(data: &Path, captured: &Captured<'_>) -> io::Result<()> {
    let summary = captured.summary;
    let header = Description {
        file: data.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        told: Told::of(captured),
        complete: summary.complete,
        bytes: summary.bytes,
        lost_frames: summary.lost_frames,
        loss_known: summary.loss_known,
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
    replace_text(&path_of(data), &text)
}
