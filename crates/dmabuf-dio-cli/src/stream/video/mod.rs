// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio capture` of a video device.

pub(super) mod args;
mod player;
mod report;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dmabuf_dio_stream::{
    BlockRing, Device, FrameLog, FrameMemory, Known, State, Stream, Summary, VideoDevice,
    VideoFormat, VideoSource, available,
};
use dmabuf_dio_terminal::exit::{FAILED, Failure, USAGE};
use dmabuf_dio_terminal::signals;
use report::Captured;

use super::args::{CaptureArgs, Policy, StreamArgs};
use super::capture::{Outcome, nobody, room_for};
use super::device::{numbers, open_files};
use super::meter::Meter;
use super::notes::Notes;
use super::recording::{self, frames_file};
pub(super) use report::path_of;

/// The node of a video device, unless the name is one of an IIO device. Fails if several have it.
pub(crate) fn find(name: &str) -> Result<Option<PathBuf>, Failure> {
    if Device::find(name).is_some() {
        return Ok(None);
    }
    let mut all = VideoDevice::matching(name);
    if all.len() < 2 {
        return Ok(all.pop());
    }
    let nodes: Vec<_> = all.iter().map(|node| node.display().to_string()).collect();
    let what = format!("{} devices are called {name}", all.len());
    Err(Failure::new(USAGE, what, format!("choose one of them: {}", nodes.join(", "))))
}

pub(super) fn run(args: &CaptureArgs, node: &Path) -> Result<(), Failure> {
    args::refuse_iio(args)?;
    let file = frames_file(args, &report::path_of)?;
    let (recording, source, ring) = set_up(args, node, file)?;
    let format = recording.format;
    // Of compressed frames nobody knows the length before.
    let limit = args.video.frames.filter(|_| !format.compressed);
    let limit = limit.map(|frames| frames.saturating_mul(format.frame_bytes.into()));
    if let (Some(path), Some(bytes)) = (file, limit) {
        room_for(path, bytes)?;
    }
    let source = match (args.common.seconds, args.video.frames) {
        (Some(seconds), _) => source.time(Duration::from_secs_f64(seconds)),
        (None, Some(frames)) if limit.is_none() => source.frames(frames),
        _ => source,
    };
    let mut source = if args.overrun == Policy::Fail { source.strict() } else { source };
    let token = signals::token();
    let frame = if format.compressed { 1 } else { format.frame_bytes.into() };
    let _lock = file.map(recording::lock).transpose()?;
    let target = args.to.open(frame, &token)?.ok_or_else(nobody)?;
    let is_stdout = target.is_stdout;
    let (mut sink, function) = target.into_parts();
    // In case the process is killed.
    recording.describe(&recording.captured(source.log(), &Summary::default()))?;
    let notes = recording.notes()?;
    let mut meter = Meter::new("captured", args.common.quiet);
    let stream = Stream::new(&mut source, &mut *sink, ring).cancel(token);
    let stream = stream.progress(move |state: State| meter.update(state));
    let stream = match limit {
        Some(bytes) => stream.limit(bytes),
        None => stream,
    };
    let stream = match &notes {
        Some(notes) => stream.record(|known| {
            if let Some(log) = known.frames {
                notes.offer(|| (log.clone(), so_far(known)));
            }
        }),
        None => stream,
    };
    let outcome = Outcome::of(stream.run());
    drop(notes);
    // A file is closed before it is described.
    drop((sink, function));
    recording.end(&source, outcome, is_stdout)
}

/// The device, set as asked, and a ring of its frames.
fn set_up<'a>(
    args: &'a CaptureArgs,
    node: &'a Path,
    file: Option<&'a Path>,
) -> Result<(Recording<'a>, VideoSource, BlockRing), Failure> {
    let device = VideoDevice::open(node)?;
    device.set_format(args.video.pixel_format, args.video.size)?;
    let rate = match args.video.fps {
        Some(fps) => Some(device.set_rate(fps)?),
        None => device.rate(),
    };
    let name = device.name().to_owned();
    let mut source = VideoSource::new(device)?;
    let ring = ring(&mut source, &args.common, rate)?;
    let (format, memory) = (*source.format(), source.memory().clone());
    Ok((Recording { args, node, file, name, format, rate, memory }, source, ring))
}

/// What is recorded, from where, into which file.
struct Recording<'a> {
    args: &'a CaptureArgs,
    node: &'a Path,
    /// `None` if the frames do not go to a file.
    file: Option<&'a Path>,
    name: String,
    format: VideoFormat,
    rate: Option<f64>,
    memory: FrameMemory,
}

/// What the description says while the capture runs.
fn so_far(known: &Known<'_>) -> Summary {
    let Known { bytes, loss_known, .. } = *known;
    let lost_frames = known.gaps.iter().filter_map(|gap| gap.frames).sum();
    Summary { bytes, loss_known, lost_frames, gaps: known.gaps.clone(), ..Summary::default() }
}

impl Recording<'_> {
    fn captured<'s>(&'s self, log: &'s FrameLog, summary: &'s Summary) -> Captured<'s> {
        Captured {
            node: self.node,
            name: &self.name,
            format: self.format,
            rate: self.rate,
            memory: &self.memory,
            log,
            summary,
            asked: self.args.video.frames,
        }
    }

    /// What writes the description while the capture runs.
    fn notes(&self) -> Result<Option<Notes<(FrameLog, Summary)>>, Failure> {
        let Some(path) = self.file.map(Path::to_owned) else { return Ok(None) };
        let (node, name, memory) = (self.node.to_owned(), self.name.clone(), self.memory.clone());
        let (format, rate, asked) = (self.format, self.rate, self.args.video.frames);
        let write = move |(log, summary): (FrameLog, Summary)| {
            let (node, name, memory) = (&*node, &*name, &memory);
            let (log, summary) = (&log, &summary);
            let captured = Captured { node, name, format, rate, memory, log, summary, asked };
            report::describe(&path, &captured)
        };
        Notes::start(write).map(Some)
    }

    /// Writes the description beside the file.
    fn describe(&self, captured: &Captured<'_>) -> Result<(), Failure> {
        self.file.map_or(Ok(()), |path| report::describe(path, captured)).map_err(|error| {
            let what = format!("cannot write the description of the frames: {error}");
            Failure::new(FAILED, what, "check the folder and its free space")
        })
    }

    /// Describes the file and prints the report. A file without a frame is removed.
    fn end(&self, source: &VideoSource, outcome: Outcome, is_stdout: bool) -> Result<(), Failure> {
        let captured = self.captured(source.log(), &outcome.summary);
        let nothing = outcome.summary.bytes == 0;
        let described = match self.file {
            Some(path) if nothing => {
                // They would only be in the way of the next capture.
                let _ = (fs::remove_file(path), fs::remove_file(report::path_of(path)));
                Ok(())
            }
            _ => self.describe(&captured),
        };
        let failure = outcome.error.map(Failure::from);
        let failure = failure.or_else(|| shortfall(self.args, &captured, source.has_reached_end()));
        let path = self.file.filter(|_| !nothing).map(report::path_of);
        let printed =
            report::print(self.args, &captured, path.as_deref(), is_stdout, failure.as_ref());
        failure.map_or(printed, Err)?;
        described
    }
}

/// A ring with the requested number of blocks, or one that suits the rate and the free memory.
fn ring(
    source: &mut VideoSource,
    args: &StreamArgs,
    rate: Option<f64>,
) -> Result<BlockRing, Failure> {
    let bytes = u64::from(source.format().frame_bytes);
    if let Some(blocks) = args.blocks {
        return Ok(source.ring(blocks, blocks)?);
    }
    let bytes_per_second = rate.map(|rate| rate * bytes as f64);
    let (blocks, most) = numbers(args, bytes, bytes_per_second, available(), open_files());
    // A driver may want more than two.
    let blocks = blocks.max(FEWEST);
    Ok(source.ring(blocks, most.max(blocks))?)
}

/// Blocks of a ring at least: a driver may keep two or three for itself.
const FEWEST: usize = 4;

/// The failure of a capture that ended in order, but with less than was asked for.
fn shortfall(args: &CaptureArgs, captured: &Captured<'_>, at_end: bool) -> Option<Failure> {
    let (frames, summary) = (captured.frames(), captured.summary);
    let interrupted = signals::caught().is_some();
    let asked = captured.asked.is_some() || args.common.seconds.is_some();
    if frames == 0 && interrupted {
        let what = "interrupted before the first frame";
        return Some(Failure::new(FAILED, what, "wait longer; check that the device has a signal"));
    }
    if frames == 0 || asked && !summary.complete || args.common.seconds.is_some() && !at_end {
        let of = captured.asked.map_or_else(String::new, |asked| format!(" of {asked}"));
        let hint = if interrupted {
            "it was interrupted: run it again"
        } else {
            "the device gave no more: check that it has a signal"
        };
        return Some(Failure::new(FAILED, format!("only {frames} frames{of} were captured"), hint));
    }
    let what = args.common.exceeds_loss(summary, frames)?;
    let hint = match captured.memory {
        _ if !args.common.is_loss_too_large(summary, frames) => {
            "the driver does not number frames: leave out --max-loss, or allow anything: \
             --max-loss 100%"
        }
        FrameMemory::Heap(_) => {
            "choose a smaller --size or --fps, a longer --ring or a faster file; or allow it"
        }
        FrameMemory::Driver | FrameMemory::Mapped => {
            "choose a smaller --size or --fps: frames are copied to the file; or allow it"
        }
    };
    Some(Failure::new(FAILED, what, hint))
}
