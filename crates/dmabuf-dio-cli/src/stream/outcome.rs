// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a stream of an IIO device, and tells whether everything requested was moved.

use dmabuf_dio::CancelToken;
use dmabuf_dio_stream::{Interrupted, State, Stream, Summary};
use dmabuf_dio_terminal::exit::{FAILED, Failure};
use dmabuf_dio_terminal::signals;

use super::device::Chosen;
use super::loss::exceeded;
use super::meter::Meter;
use super::report::{self, Report};
use crate::args::streams::StreamArgs;

/// The summary of a stream, and the error that ended it early.
pub(crate) struct Outcome {
    pub(crate) summary: Summary,
    pub(crate) error: Option<Failure>,
}

impl Outcome {
    pub(super) fn of(result: Result<Summary, Box<Interrupted>>) -> Self {
        match result {
            Ok(summary) => Self { summary, error: None },
            Err(interrupted) => {
                Self { summary: interrupted.summary, error: Some(interrupted.error.into()) }
            }
        }
    }

    /// Prints the summary. Fails if the stream failed, or if it moved less than requested.
    pub(super) fn report(self, args: &StreamArgs, end: &Report<'_>) -> Result<(), Failure> {
        let failure = self.error.or_else(|| shortfall(args, end, &self.summary));
        let printed = report::print(args, end, &self.summary, failure.as_ref());
        failure.map_or(printed, Err)
    }
}

/// Runs a stream until its limit, a signal or an error. With samples, the device keeps its settings.
pub(super) fn run(
    stream: Stream<'_>,
    args: &StreamArgs,
    chosen: &mut Chosen,
    token: CancelToken,
    what: &'static str,
) -> Outcome {
    let frames = chosen.frames(args);
    let stream = match (args.seconds, frames) {
        (Some(seconds), frames) => stream.time(frames, seconds),
        (None, Some(frames)) => stream.limit(frames.saturating_mul(chosen.frame())),
        (None, None) => stream,
    };
    let mut meter = Meter::new(what, args.report.quiet);
    let stream = stream.cancel(token).progress(move |state: State| meter.update(state));
    let outcome = Outcome::of(stream.run());
    if outcome.summary.bytes > 0 {
        chosen.keep();
    }
    outcome
}

/// The failure of a stream that ended cleanly, but with less than was requested.
fn shortfall(args: &StreamArgs, end: &Report<'_>, summary: &Summary) -> Option<Failure> {
    let frames = summary.bytes / end.chosen.frame();
    let interrupted = signals::caught().is_some();
    let failed = |what: String, hint: &str| Some(Failure::new(FAILED, what, hint));
    if frames == 0 && end.is_moved_known && !interrupted {
        let hint =
            "there were none: check the device's trigger and its clock, or the file or sender";
        return failed("no frame was moved".into(), hint);
    }
    if frames == 0 && end.is_moved_known && !summary.complete {
        let what = "interrupted before the first block was full: no frame was moved";
        return failed(what.into(), "wait longer, or choose smaller blocks: --block-size");
    }
    if !summary.complete && (args.samples.is_some() || args.seconds.is_some()) {
        let asked = end.chosen.frames(args);
        let of = asked.map_or_else(String::new, |asked| format!(" of {asked}"));
        let hint = if interrupted {
            "it was interrupted: run it again"
        } else {
            "the device is slower than its rate says, or the input ended: check its clock, its \
             trigger, and the sender"
        };
        return failed(format!("only {frames} frames{of} were moved"), hint);
    }
    let (what, is_known) = exceeded(&args.report, summary, frames)?;
    let hint = if is_known {
        "choose a lower rate, more or larger blocks, or a faster file or receiver; or allow it"
    } else {
        "leave out --max-loss, or allow anything: --max-loss 100%; the status register of a core of \
         Analog Devices tells of losses, only to root"
    };
    failed(what, hint)
}
