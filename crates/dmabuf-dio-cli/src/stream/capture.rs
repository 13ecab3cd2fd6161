// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio capture`.

use std::path::Path;

use dmabuf_dio::CancelToken;
use dmabuf_dio_stream::{BlockRing, ConvertingSink, IioSource, Source, Stream};
use dmabuf_dio_terminal::exit::{FAILED, Failure, say};
use dmabuf_dio_terminal::signals;

use super::device::Chosen;
use super::files::room_for;
use super::format::Samples;
use super::outcome::{self, Outcome};
use super::recording::{self, Recording};
use super::report::Report;
use super::sigmf::names::path_of;
use super::sigmf::sidecar::{Content, Sidecar};
use super::target::Open;
use super::used::Used;
use crate::args::address::Target;
use crate::args::streams::CaptureArgs;

pub(crate) fn run(args: &CaptureArgs) -> Result<(), Failure> {
    let common = &args.common;
    used(args).check_report(&common.report)?;
    // Checks that change nothing come first.
    let file = recording::file(args)?;
    let mut chosen = Chosen::find(&args.device, common)?;
    let samples = Samples::of(args, &chosen)?;
    chosen.other_frame = samples.conversion.as_ref().map(|_| samples.frame);
    chosen.block(common)?;
    let mut source = IioSource::open(chosen.device.clone(), chosen.buffer, &chosen.channels)?;
    chosen.set_up(common)?;
    let ring = chosen.ring(common)?;
    let recording = record(args, file, &chosen, &samples)?;
    let token = signals::token();
    let mut open = open(args, &recording, &samples, &token)?;
    recording.begin()?;
    let outcome = stream(args, &mut source, &mut open, &recording, ring, &mut chosen, token)?;
    let is_stdout = open.is_stdout;
    // Files are closed before they are described.
    drop(open);
    let described = recording.end(&outcome.summary);
    let described = described.inspect_err(|error| say(&format!("dmabuf-dio: {}", error.what())));
    let reported = report(args, &recording, &samples, &chosen, outcome, is_stdout);
    drop(source);
    let as_before = chosen.put_back();
    reported.and(as_before)?;
    described.map_err(|_| {
        let what = "the samples are complete, but their description is not";
        Failure::new(FAILED, what, "write it by hand, or capture again")
    })
}

/// The files that are written.
fn used(args: &CaptureArgs) -> Used<'_> {
    match &args.destination.to {
        Target::File(path) if args.rotate.is_some() => {
            Used { series: Some(path), ..Used::default() }
        }
        to => Used::by_capture(to, path_of),
    }
}

/// The recording in `file`. Fails if there is no room for everything requested.
fn record(
    args: &CaptureArgs,
    file: Option<&Path>,
    chosen: &Chosen,
    samples: &Samples,
) -> Result<Recording, Failure> {
    let Some(path) = file else { return Ok(Recording::Stream) };
    if let Some(frames) = chosen.frames(&args.common) {
        room_for(path, frames.saturating_mul(samples.frame))?;
    }
    let frequency = args.frequency.or_else(|| chosen.setup.oscillator());
    Recording::new(args, Sidecar::new(path, chosen, samples, frequency), chosen, samples.frame)
}

/// Opens the destination, with a conversion before it if there is one.
fn open<'a>(
    args: &CaptureArgs,
    recording: &'a Recording,
    samples: &Samples,
    token: &CancelToken,
) -> Result<Open<'a>, Failure> {
    let open = match recording.sink(samples.frame)? {
        Some(sink) => Open::new(sink),
        None => args.destination.to.open(samples.frame, token)?,
    };
    let Some((from, to)) = samples.conversion.clone() else { return Ok(open) };
    Ok(Open { sink: Box::new(ConvertingSink::new(open.sink, from, to)?), ..open })
}

/// Moves the samples, and describes them meanwhile.
fn stream(
    args: &CaptureArgs,
    source: &mut dyn Source,
    open: &mut Open<'_>,
    recording: &Recording,
    ring: BlockRing,
    chosen: &mut Chosen,
    token: CancelToken,
) -> Result<Outcome, Failure> {
    let notes = recording.notes()?;
    let mut stream =
        Stream::new(source, &mut *open.sink, ring).overrun(args.destination.overrun.into());
    if let Some(frames) = recording.cut() {
        stream = stream.cut(frames.saturating_mul(chosen.frame()));
    }
    if let Some(notes) = &notes {
        stream = stream.record(|known| notes.offer(|| Content::so_far(known)));
    }
    Ok(outcome::run(stream, &args.common, chosen, token, "captured"))
}

fn report(
    args: &CaptureArgs,
    recording: &Recording,
    samples: &Samples,
    chosen: &Chosen,
    outcome: Outcome,
    is_stdout: bool,
) -> Result<(), Failure> {
    let bytes = outcome.summary.bytes;
    let frames = bytes / chosen.frame();
    let description = recording.description().filter(|_| bytes > 0);
    let pieces = recording.pieces(frames);
    let end = Report {
        chosen,
        other: &args.destination.to.to_string(),
        sidecar: description.as_deref(),
        converted: samples.converted(frames),
        pieces: pieces.as_deref(),
        lost: "lost",
        is_stdout,
        is_moved_known: true,
    };
    outcome.report(&args.common, &end)
}
