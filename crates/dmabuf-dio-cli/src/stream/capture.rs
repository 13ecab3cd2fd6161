// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio capture`.

use std::io;
use std::path::Path;
use std::time::Duration;

use dmabuf_dio::CancelToken;
use dmabuf_dio_stream::{IioSource, Interrupted, State, Stream, Summary};

use super::args::{CaptureArgs, StreamArgs};
use super::device::Chosen;
use super::meter::Meter;
use super::report::{self, Report};
use super::sigmf::{self, Sidecar};
use super::target::{Target, refuse_to_replace};
use crate::exit::{FAILED, Failure, USAGE, say};
use crate::signals;

/// Extra time for a capture with `--seconds`, in seconds. A device that takes longer is stuck.
const SLACK: f64 = 10.0;

pub(crate) fn run(args: &CaptureArgs) -> Result<(), Failure> {
    let common = &args.common;
    // Checks that change nothing come first.
    let file = file(args)?;
    let mut chosen = Chosen::find(&args.device, common)?;
    chosen.block(common)?;
    let mut source = IioSource::open(chosen.device.clone(), chosen.buffer, &chosen.channels)?;
    if let Some(rate) = common.rate {
        chosen.set_rate(rate)?;
    }
    let ring = chosen.ring(common)?;
    let token = signals::token();
    let Some(mut target) = args.to.open(&token)? else {
        return Err(Failure::new(
            FAILED,
            "interrupted before a USB host connected",
            "run it again",
        ));
    };
    let sidecar = file.map(|path| Sidecar::new(path, &chosen, args.iq, args.frequency));
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
    let path = sidecar.as_ref().map(|sidecar| sidecar.path.as_path());
    let end = Report { chosen: &chosen, other: &args.to.to_string(), sidecar: path };
    outcome.report(common, &end)?;
    match described {
        Some(Err(())) => Err(Failure::new(
            FAILED,
            "the samples are complete, but their description is not",
            "write it by hand, or capture again",
        )),
        _ => Ok(()),
    }
}

/// The file that gets a description. Existing files are replaced only with `--force`.
fn file(args: &CaptureArgs) -> Result<Option<&Path>, Failure> {
    let Target::File(path) = &args.to else { return Ok(None) };
    if sigmf::is_description(path) {
        let what = format!("{} is the name of a description", path.display());
        return Err(Failure::new(USAGE, what, "choose one for the samples: NAME.sigmf-data"));
    }
    refuse_to_replace(path, args.force)?;
    if path.exists() && !path.is_file() {
        return Ok(None);
    }
    refuse_to_replace(&sigmf::path_of(path), args.force)?;
    Ok(Some(path))
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
    error: Option<dmabuf_dio_stream::Error>,
}

impl Outcome {
    fn of(result: Result<Summary, Box<Interrupted>>) -> Self {
        match result {
            Ok(summary) => Self { summary, error: None },
            Err(interrupted) => {
                Self { summary: interrupted.summary, error: Some(interrupted.error) }
            }
        }
    }

    /// Prints the summary, and fails if the stream did.
    pub(crate) fn report(self, args: &StreamArgs, end: &Report<'_>) -> Result<(), Failure> {
        let printed = report::print(args, end, &self.summary, self.error.as_ref());
        match self.error {
            Some(error) => Err(error.into()),
            None => printed,
        }
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
    let stream = match frames {
        Some(frames) => stream.limit(frames.saturating_mul(chosen.frame())),
        None => stream,
    };
    // Without a rate, the clock alone ends the capture.
    let slack = if frames.is_some() { SLACK } else { 0.0 };
    let deadline = args.seconds.map(|seconds| Duration::from_secs_f64(seconds + slack));
    let at_deadline = token.clone();
    let stream = stream.cancel(token).progress(move |state: State| {
        if deadline.is_some_and(|deadline| state.elapsed >= deadline) {
            at_deadline.cancel();
        }
        meter.update(state);
    });
    Outcome::of(stream.run())
}
