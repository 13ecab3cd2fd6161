// SPDX-License-Identifier: MIT OR Apache-2.0
//! Captures frames, and describes them.

use std::fs;
use std::path::Path;
use std::time::Duration;

use dmabuf_dio_stream::{
    BlockRing, FrameLog, FrameMemory, Known, State, Stream, Summary, VideoDevice, VideoSource,
};
use dmabuf_dio_terminal::exit::{FAILED, Failure};
use dmabuf_dio_terminal::signals;

use super::report::{self, Captured, Facts};
use crate::args::address::Target;
use crate::args::destination::DestinationArgs;
use crate::args::streams::RingArgs;
use crate::args::values::Policy;
use crate::args::video::VideoArgs;
use crate::devices::find;
use crate::stream::files::{lock, refuse_to_replace, room_for};
use crate::stream::loss::exceeded;
use crate::stream::meter::Meter;
use crate::stream::notes::Notes;
use crate::stream::outcome::Outcome;
use crate::stream::ring::numbers;
use crate::stream::used::Used;

/// The fewest blocks of a ring: a driver may keep two or three for itself.
const FEWEST: usize = 4;

pub(crate) fn run(args: &VideoArgs) -> Result<(), Failure> {
    Used::by_capture(&args.destination.to, report::path_of).check_report(&args.report)?;
    let file = file(args)?;
    let node = find::video(&args.device)?;
    let (facts, source, ring) = set_up(args, &node)?;
    let format = facts.format;
    // The length of compressed frames is unknown in advance.
    let limit = args.frames.filter(|_| !format.compressed);
    let limit = limit.map(|frames| frames.saturating_mul(format.frame_bytes.into()));
    if let (Some(path), Some(bytes)) = (file, limit) {
        room_for(path, bytes)?;
    }
    let mut source = limited(args, source, limit.is_some());
    let token = signals::token();
    let frame = if format.compressed { 1 } else { format.frame_bytes.into() };
    let _lock = file.map(lock).transpose()?;
    let mut open = args.destination.to.open(frame, &token)?;
    // In case the process is killed.
    describe(file, &Captured { facts: &facts, log: source.log(), summary: &Summary::default() })?;
    let notes = file.map(|path| notes(path, &facts)).transpose()?;
    let mut meter = Meter::new("captured", args.report.quiet);
    let mut stream = Stream::new(&mut source, &mut *open.sink, ring).cancel(token);
    stream = stream.progress(move |state: State| meter.update(state));
    if let Some(bytes) = limit {
        stream = stream.limit(bytes);
    }
    if let Some(notes) = &notes {
        stream = stream.record(|known| {
            if let Some(log) = known.frames {
                notes.offer(|| (log.clone(), so_far(known)));
            }
        });
    }
    let outcome = Outcome::of(stream.run());
    drop(notes);
    let is_stdout = open.is_stdout;
    // A file is closed before it is described.
    drop(open);
    end(args, file, &facts, &source, outcome, is_stdout)
}

/// The file that gets a description. Existing files are replaced only with `--force`.
fn file(args: &VideoArgs) -> Result<Option<&Path>, Failure> {
    let DestinationArgs { to, force, .. } = &args.destination;
    let Target::File(path) = to else {
        args.destination.need_file(&[("--force", *force)], "NAME.raw")?;
        return Ok(None);
    };
    refuse_to_replace(path, *force)?;
    if path.exists() && !path.is_file() {
        return Ok(None);
    }
    refuse_to_replace(&report::path_of(path), *force)?;
    Ok(Some(path))
}

/// The device with the requested settings, and a ring for its frames.
fn set_up(args: &VideoArgs, node: &Path) -> Result<(Facts, VideoSource, BlockRing), Failure> {
    let device = VideoDevice::open(node)?;
    device.set_format(args.pixel_format, args.size)?;
    let rate = match args.fps {
        Some(fps) => Some(device.set_rate(fps)?),
        None => device.rate(),
    };
    let (node, name, asked) = (node.to_owned(), device.name().to_owned(), args.frames);
    let mut source = VideoSource::new(device)?;
    let ring = ring(&mut source, &args.ring, rate)?;
    let (format, memory) = (*source.format(), source.memory().clone());
    Ok((Facts { node, name, format, rate, memory, asked }, source, ring))
}

/// A ring with the requested number of blocks, or one that suits the rate and the free memory.
fn ring(
    source: &mut VideoSource,
    args: &RingArgs,
    rate: Option<f64>,
) -> Result<BlockRing, Failure> {
    let bytes = u64::from(source.format().frame_bytes);
    if let Some(blocks) = args.blocks {
        return Ok(source.ring(blocks, blocks)?);
    }
    let (blocks, most) = numbers(args, bytes, rate.map(|rate| rate * bytes as f64));
    let blocks = blocks.max(FEWEST);
    Ok(source.ring(blocks, most.max(blocks))?)
}

/// The source with the limits that the stream itself does not count.
fn limited(args: &VideoArgs, source: VideoSource, is_by_bytes: bool) -> VideoSource {
    let source = match (args.seconds, args.frames) {
        (Some(seconds), _) => source.time(Duration::from_secs_f64(seconds)),
        (None, Some(frames)) if !is_by_bytes => source.frames(frames),
        _ => source,
    };
    if args.destination.overrun == Policy::Fail { source.strict() } else { source }
}

/// The summary for the description while the capture runs.
fn so_far(known: &Known<'_>) -> Summary {
    let Known { bytes, loss_known, .. } = *known;
    let lost_frames = known.gaps.iter().filter_map(|gap| gap.frames).sum();
    Summary { bytes, loss_known, lost_frames, gaps: known.gaps.clone(), ..Summary::default() }
}

/// Starts the thread that writes the description while the capture runs.
fn notes(path: &Path, facts: &Facts) -> Result<Notes<(FrameLog, Summary)>, Failure> {
    let (path, facts) = (path.to_owned(), facts.clone());
    Notes::start(move |(log, summary): (FrameLog, Summary)| {
        report::describe(&path, &Captured { facts: &facts, log: &log, summary: &summary })
    })
}

/// Writes the description beside the file.
fn describe(file: Option<&Path>, captured: &Captured<'_>) -> Result<(), Failure> {
    file.map_or(Ok(()), |path| report::describe(path, captured)).map_err(|error| {
        let what = format!("cannot write the description of the frames: {error}");
        Failure::new(FAILED, what, "check the folder and its free space")
    })
}

/// Describes the file and prints the report. A file without a frame is removed.
fn end(
    args: &VideoArgs,
    file: Option<&Path>,
    facts: &Facts,
    source: &VideoSource,
    outcome: Outcome,
    is_stdout: bool,
) -> Result<(), Failure> {
    let captured = Captured { facts, log: source.log(), summary: &outcome.summary };
    let kept = file.filter(|_| outcome.summary.bytes > 0);
    if let (Some(path), None) = (file, kept) {
        // They would only obstruct the next capture.
        let _ = (fs::remove_file(path), fs::remove_file(report::path_of(path)));
    }
    let described = describe(kept, &captured);
    let failure = outcome.error.or_else(|| shortfall(args, &captured, source.has_reached_end()));
    let path = kept.map(report::path_of);
    let printed = report::print(args, &captured, path.as_deref(), is_stdout, failure.as_ref());
    failure.map_or(printed, Err)?;
    described
}

/// The failure of a capture that ended in order, but with less than requested.
fn shortfall(args: &VideoArgs, captured: &Captured<'_>, at_end: bool) -> Option<Failure> {
    let (frames, summary) = (captured.frames(), captured.summary);
    let interrupted = signals::caught().is_some();
    let asked = args.frames.is_some() || args.seconds.is_some();
    if frames == 0 && interrupted {
        let what = "interrupted before the first frame";
        return Some(Failure::new(FAILED, what, "wait longer; check that the device has a signal"));
    }
    if frames == 0 || asked && !summary.complete || args.seconds.is_some() && !at_end {
        let of = args.frames.map_or_else(String::new, |asked| format!(" of {asked}"));
        let hint = if interrupted {
            "it was interrupted: run it again"
        } else {
            "the device gave no more: check that it has a signal"
        };
        return Some(Failure::new(FAILED, format!("only {frames} frames{of} were captured"), hint));
    }
    let (what, is_known) = exceeded(&args.report, summary, frames)?;
    let hint = match captured.facts.memory {
        _ if !is_known => {
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
