// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio capture`.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use dmabuf_dio::CancelToken;
use dmabuf_dio_stream::{ConvertingSink, IioSource, Interrupted, Sink, State, Stream, Summary};
use dmabuf_dio_terminal::exit::{FAILED, Failure, say};
use dmabuf_dio_terminal::signals;

use super::address::{Address, Use};
use super::args::{CaptureArgs, StreamArgs, Used};
use super::device::Chosen;
use super::format::Samples;
use super::meter::Meter;
use super::recording::{self, Recording};
use super::report::{self, Report};
use super::sigmf::{self, Content, Sidecar};
use super::target::Target;
use super::video;

pub(crate) fn run(args: &CaptureArgs) -> Result<(), Failure> {
    let node = video::find(&args.device)?;
    args.common.check_report(&used(args, node.is_some()))?;
    if let Some(node) = node {
        return video::run(args, &node);
    }
    video::args::refuse_video(args)?;
    let common = &args.common;
    // Checks that change nothing come first.
    let file = recording::file(args)?;
    let mut chosen = Chosen::find(&args.device, common)?;
    let samples = Samples::of(args, &chosen)?;
    chosen.other_frame = samples.conversion.as_ref().map(|_| samples.frame);
    chosen.block(common)?;
    let mut source = IioSource::open(chosen.device.clone(), chosen.buffer, &chosen.channels)?;
    chosen.set_up(common.quiet)?;
    if let Some(rate) = common.rate {
        chosen.set_rate(rate)?;
    }
    let ring = chosen.ring(common)?;
    if let Some(path) = file {
        check_room(path, common, &chosen, samples.frame)?;
    }
    let token = signals::token();
    let frequency = args.frequency.or_else(|| chosen.setup.oscillator());
    let sidecar = file.map(|path| Sidecar::new(path, &chosen, &samples, frequency));
    let recording = Recording::new(args, file.zip(sidecar), &chosen, samples.frame)?;
    let (mut function, mut is_stdout) = (None, false);
    let sink: Box<dyn Sink + '_> = if let Some(sink) = recording.sink(samples.frame)? {
        sink
    } else {
        let target = args.to.open(samples.frame, &token)?.ok_or_else(nobody)?;
        is_stdout = target.is_stdout;
        let (sink, ours) = target.into_parts();
        function = ours;
        sink
    };
    recording.begin()?;
    let (mut plain, mut converting) = match samples.conversion.clone() {
        None => (Some(sink), None),
        Some((from, to)) => (None, Some(ConvertingSink::new(sink, from, to)?)),
    };
    let sink: &mut dyn Sink = match (&mut plain, &mut converting) {
        (Some(plain), _) => &mut **plain,
        (None, Some(converting)) => converting,
        (None, None) => return Err(Failure::new(FAILED, "there is no sink", "")),
    };
    let meter = Meter::new("captured", common.quiet);
    let notes = recording.notes()?;
    let mut stream = Stream::new(&mut source, sink, ring).overrun(args.overrun.into());
    if let Some(frames) = recording.cut() {
        stream = stream.cut(frames.saturating_mul(chosen.frame()));
    }
    if let Some(notes) = &notes {
        stream = stream.record(|known| notes.offer(|| Content::so_far(known)));
    }
    let outcome = run_stream(stream, common, &chosen, token, meter);
    // Without a sample the device's settings are put back.
    if outcome.summary.bytes > 0 {
        chosen.keep();
    }
    drop(notes);
    let converted = converting.as_ref().map(ConvertingSink::converted);
    // Files are closed before they are described.
    drop((plain, converting, function));
    let described = recording.end(&outcome.summary);
    let described = described.map_err(|error| say(&format!("dmabuf-dio: {}", error.what())));
    let nothing = outcome.summary.bytes == 0;
    let path = recording.description().filter(|_| !nothing);
    let pieces = recording.pieces(outcome.summary.bytes / chosen.frame());
    let end = Report {
        chosen: &chosen,
        other: &args.to.to_string(),
        sidecar: path.as_deref(),
        converted: converted.as_ref(),
        pieces: pieces.as_deref(),
        lost: "lost",
        is_stdout,
        is_moved_known: true,
    };
    let reported = outcome.report(common, &end);
    drop(source);
    let as_before = chosen.put_back();
    reported.and(as_before)?;
    match described {
        Err(()) => Err(Failure::new(
            FAILED,
            "the samples are complete, but their description is not",
            "write it by hand, or capture again",
        )),
        Ok(()) => Ok(()),
    }
}

/// The files that are written.
fn used(args: &CaptureArgs, is_video: bool) -> Used<'_> {
    let (mut used, is_cut) = (Used::default(), args.rotate.is_some());
    match &args.to {
        Target::File(path) if is_cut => used.series = Some(path),
        Target::File(path) => {
            let description = if is_video { video::path_of(path) } else { sigmf::path_of(path) };
            used.files = vec![path.clone(), description];
        }
        Target::To(Address::Special(path)) => used.files = vec![path.clone()],
        Target::To(Address::Standard) => used.standard = Some(Use::Write),
        _ => {}
    }
    used
}

/// Interrupted while waiting for the other end.
pub(super) fn nobody() -> Failure {
    Failure::new(FAILED, "interrupted before the other end connected", "run it again")
}

/// Fails if there is no room for everything requested, before the file is replaced.
fn check_room(path: &Path, args: &StreamArgs, chosen: &Chosen, frame: u64) -> Result<(), Failure> {
    let Some(frames) = chosen.frames(args) else { return Ok(()) };
    room_for(path, frames.saturating_mul(frame))
}

/// Fails if there is no room for `bytes` bytes, those of the file that is replaced included.
pub(super) fn room_for(path: &Path, bytes: u64) -> Result<(), Failure> {
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    let Ok(facts) = rustix::fs::statvfs(folder.unwrap_or(Path::new("."))) else { return Ok(()) };
    let replaced = std::fs::metadata(path).map_or(0, |facts| facts.blocks() * 512);
    let free = facts.f_bavail.saturating_mul(facts.f_frsize).saturating_add(replaced);
    // Some file systems do not say.
    if facts.f_blocks == 0 || bytes <= free {
        return Ok(());
    }
    let what = format!("{}: cannot make room for {bytes} bytes: {free} are free", path.display());
    Err(Failure::new(FAILED, what, "free space on the file system, or request less"))
}

/// The summary of a stream, and the error that ended it early.
pub(crate) struct Outcome {
    pub(crate) summary: Summary,
    pub(super) error: Option<dmabuf_dio_stream::Error>,
}

impl Outcome {
    pub(super) fn of(result: Result<Summary, Box<Interrupted>>) -> Self {
        match result {
            Ok(summary) => Self { summary, error: None },
            Err(interrupted) => {
                Self { summary: interrupted.summary, error: Some(interrupted.error) }
            }
        }
    }

    /// Prints the summary. Fails if the stream did, or if there is less than was requested.
    pub(crate) fn report(self, args: &StreamArgs, end: &Report<'_>) -> Result<(), Failure> {
        let failure = self.error.map(Failure::from).or_else(|| shortfall(args, end, &self.summary));
        let printed = report::print(args, end, &self.summary, failure.as_ref());
        failure.map_or(printed, Err)
    }
}

/// Runs a stream until its limit, a signal or an error.
pub(crate) fn run_stream(
    stream: Stream<'_>,
    args: &StreamArgs,
    chosen: &Chosen,
    token: CancelToken,
    mut meter: Meter,
) -> Outcome {
    let frames = chosen.frames(args);
    let stream = match (args.seconds, frames) {
        (Some(seconds), frames) => stream.time(frames, seconds),
        (None, Some(frames)) => stream.limit(frames.saturating_mul(chosen.frame())),
        (None, None) => stream,
    };
    let stream = stream.cancel(token).progress(move |state: State| meter.update(state));
    Outcome::of(stream.run())
}

/// The failure of a stream that ended cleanly, but with less than was requested.
pub(crate) fn shortfall(args: &StreamArgs, end: &Report<'_>, summary: &Summary) -> Option<Failure> {
    let frames = summary.bytes / end.chosen.frame();
    if !summary.complete && frames == 0 && end.is_moved_known && signals::caught().is_some() {
        let what = "interrupted before the first block was full: no frame was moved";
        return Some(Failure::new(
            FAILED,
            what,
            "wait longer, or choose smaller blocks: --block-size",
        ));
    }
    if frames == 0 && end.is_moved_known && signals::caught().is_none() {
        let what = "no frame was moved";
        let hint =
            "there were none: check the device's trigger and its clock, or the file or sender";
        return Some(Failure::new(FAILED, what, hint));
    }
    if !summary.complete && (args.samples.is_some() || args.seconds.is_some()) {
        let asked = end.chosen.frames(args);
        let of = asked.map_or_else(String::new, |asked| format!(" of {asked}"));
        let hint = if signals::caught().is_some() {
            "it was interrupted: run it again"
        } else {
            "the device is slower than its rate says, or the input ended: check its clock, its \
             trigger, and the sender"
        };
        return Some(Failure::new(FAILED, format!("only {frames} frames{of} were moved"), hint));
    }
    let what = args.exceeds_loss(summary, frames)?;
    let hint = if args.is_loss_too_large(summary, frames) {
        "choose a lower rate, more or larger blocks, or a faster file or receiver; or allow it"
    } else {
        "leave out --max-loss, or allow anything: --max-loss 100%; the status register of a core of \
         Analog Devices tells of losses, only to root"
    };
    Some(Failure::new(FAILED, what, hint))
}
