// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio capture`.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use dmabuf_dio::CancelToken;
use dmabuf_dio_stream::{IioSource, Interrupted, State, Stream, Summary};

use super::args::{CaptureArgs, StreamArgs};
use super::device::Chosen;
use super::meter::Meter;
use super::report::{self, Report};
use super::sigmf::{self, Sidecar};
use super::target::{Samples, Target, refuse_to_replace};
use crate::exit::{FAILED, Failure, USAGE, say};
use crate::signals;

pub(crate) fn run(args: &CaptureArgs) -> Result<(), Failure> {
    let common = &args.common;
    // Checks that change nothing come first.
    let file = file(&args.to, args.force)?;
    if args.framed && !args.to.takes_framing() {
        let what = format!("{} cannot be sent the framing", args.to);
        let hint = "a file has a description: leave out --framed; or name a pipe or a socket";
        return Err(Failure::new(USAGE, what, hint));
    }
    let mut chosen = Chosen::find(&args.device, common)?;
    chosen.block(common)?;
    if args.iq && !sigmf::is_pairs(&chosen.channels, chosen.frame()) {
        let (count, names) = (chosen.channels.len(), chosen.describe());
        let what = format!("--iq needs pairs of channels of one type, not these {count}: {names}");
        return Err(Failure::new(USAGE, what, "choose them: --channels I,Q; or leave out --iq"));
    }
    let mut source = IioSource::open(chosen.device.clone(), chosen.buffer, &chosen.channels)?;
    chosen.set_up(common.quiet)?;
    if let Some(rate) = common.rate {
        chosen.set_rate(rate)?;
    }
    let ring = chosen.ring(common)?;
    if let Some(path) = file {
        check_room(path, common, &chosen)?;
    }
    let token = signals::token();
    let description = || Sidecar::for_receiver(&chosen, args.iq, args.frequency);
    let description = args.framed.then(description);
    let samples = Samples { frame: chosen.frame(), description };
    let Some(mut target) = args.to.open(samples, &token)? else {
        return Err(nobody());
    };
    let frequency = args.frequency.or_else(|| chosen.setup.oscillator());
    let sidecar = file.map(|path| Sidecar::new(path, &chosen, args.iq, frequency));
    chosen.keep();
    if let Some(sidecar) = &sidecar {
        // In case the process is killed.
        sidecar.write(&[], 0).map_err(|error| cannot_describe(sidecar, &error))?;
    }
    let meter = Meter::new("captured", common.quiet);
    let stream = Stream::new(&mut source, &mut *target.sink, ring).overrun(args.overrun.into());
    let outcome = run_stream(stream, common, &chosen, token, meter);
    let described = sidecar.as_ref().map(|sidecar| {
        sidecar.write(&outcome.summary.gaps, outcome.summary.bytes).map_err(|error| {
            say(&format!("dmabuf-dio: {}", cannot_describe(sidecar, &error).what()));
        })
    });
    let nothing = outcome.summary.bytes == 0 && !outcome.summary.complete;
    if let Some(data) = file.filter(|_| nothing) {
        // Empty files would only be in the way of the next capture.
        let _ = std::fs::remove_file(data);
        let _ = std::fs::remove_file(sigmf::path_of(data));
    }
    let path = sidecar.as_ref().map(|sidecar| sidecar.path.as_path()).filter(|_| !nothing);
    let (other, is_stdout) = (args.to.to_string(), target.is_stdout);
    let end = Report { chosen: &chosen, other: &other, sidecar: path, lost: "lost", is_stdout };
    let reported = outcome.report(common, &end);
    drop(source);
    let as_before = chosen.put_back();
    reported.and(as_before)?;
    match described {
        Some(Err(())) => Err(Failure::new(
            FAILED,
            "the samples are complete, but their description is not",
            "write it by hand, or capture again",
        )),
        _ => Ok(()),
    }
}

/// Interrupted while waiting for the other end.
pub(super) fn nobody() -> Failure {
    Failure::new(FAILED, "interrupted before the other end was there", "run it again")
}

/// The file that gets a description. Existing files are replaced only with `--force`.
pub(super) fn file(to: &Target, force: bool) -> Result<Option<&Path>, Failure> {
    let Target::File(path) = to else { return Ok(None) };
    if sigmf::is_description(path) {
        let what = format!("{} is the name of a description", path.display());
        return Err(Failure::new(USAGE, what, "choose one for the samples: NAME.sigmf-data"));
    }
    refuse_to_replace(path, force)?;
    if path.exists() && !path.is_file() {
        return Ok(None);
    }
    refuse_to_replace(&sigmf::path_of(path), force)?;
    Ok(Some(path))
}

/// Fails if there is no room for all that was asked for, before the file is replaced.
fn check_room(path: &Path, args: &StreamArgs, chosen: &Chosen) -> Result<(), Failure> {
    let Some(frames) = chosen.frames(args) else { return Ok(()) };
    let bytes = frames.saturating_mul(chosen.frame());
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    let Ok(facts) = rustix::fs::statvfs(folder.unwrap_or(Path::new("."))) else { return Ok(()) };
    let replaced = std::fs::metadata(path).map_or(0, |facts| facts.blocks() * 512);
    let free = facts.f_bavail.saturating_mul(facts.f_frsize).saturating_add(replaced);
    // Some file systems do not say.
    if facts.f_blocks == 0 || bytes <= free {
        return Ok(());
    }
    let what = format!("{}: cannot make room for {bytes} bytes: {free} are free", path.display());
    Err(Failure::new(FAILED, what, "free space on the file system, or ask for less"))
}

fn cannot_describe(sidecar: &Sidecar, error: &io::Error) -> Failure {
    Failure::new(
        FAILED,
        format!("{}: cannot write it: {error}", sidecar.path.display()),
        "check the folder and its free space",
    )
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

    /// Prints the summary. Fails if the stream did, or if there is less than was asked for.
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

/// The failure of a stream that ended in order, but with less than was asked for.
pub(crate) fn shortfall(args: &StreamArgs, end: &Report<'_>, summary: &Summary) -> Option<Failure> {
    let frames = summary.bytes / end.chosen.frame();
    if !summary.complete && frames == 0 && signals::caught().is_some() {
        let what = "interrupted before the first block was full: no frame was moved";
        return Some(Failure::new(FAILED, what, "wait longer, or choose smaller blocks: --block"));
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
    if args.max_loss.allows(&summary.gaps, frames) {
        return None;
    }
    let lost = report::lost(summary);
    let what = format!("more was lost than --max-loss {}: {lost}", args.max_loss);
    let hint =
        "choose a lower rate, more or larger blocks, or a faster file or receiver; or allow it";
    Some(Failure::new(FAILED, what, hint))
}
