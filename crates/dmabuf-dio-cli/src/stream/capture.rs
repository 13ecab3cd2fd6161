// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio capture`.

use std::time::Duration;

use dmabuf_dio::CancelToken;
use dmabuf_dio::stream::{IioSource, State, Stream, Summary};

use super::args::{CaptureArgs, StreamArgs};
use super::device::Chosen;
use super::meter::Meter;
use super::report;
use super::sigmf::Sidecar;
use super::target::Target;
use crate::exit::{FAILED, Failure};
use crate::signals;

pub(crate) fn run(args: &CaptureArgs) -> Result<(), Failure> {
    let common = &args.common;
    let chosen = Chosen::find(&args.device, common, common.rate)?;
    let ring = chosen.ring(common)?;
    let mut source = IioSource::open(chosen.device.clone(), chosen.buffer, &chosen.channels)?;
    let token = signals::token();
    let Some(mut target) = args.to.open(args.force, &token)? else { return Ok(()) };
    let sidecar = sidecar(args, &chosen)?;
    let meter = Meter::new("captured", common.quiet);
    let stream = Stream::new(&mut source, &mut *target.sink, ring).overrun(args.overrun.into());
    let result = pump(stream, common, &chosen, token, meter);
    let (summary, error) = match result {
        Ok(summary) => (summary, None),
        Err(interrupted) => (interrupted.summary, Some(interrupted.error)),
    };
    if let Some(sidecar) = &sidecar {
        sidecar.write(&summary.gaps).map_err(|error| cannot_describe(sidecar, &error))?;
    }
    let path = sidecar.as_ref().map(|sidecar| sidecar.path.as_path());
    report::print(common, &chosen, &summary, path)?;
    error.map_or(Ok(()), |error| Err(error.into()))
}

/// Runs a stream until all that was asked for has gone through, or somebody ends it.
pub(crate) fn pump(
    stream: Stream<'_>,
    args: &StreamArgs,
    chosen: &Chosen,
    token: CancelToken,
    mut meter: Meter,
) -> Result<Summary, Box<dmabuf_dio::stream::Interrupted>> {
    let frames = chosen.frames(args);
    let stream = match frames {
        Some(frames) => stream.limit(frames.saturating_mul(chosen.frame())),
        None => stream,
    };
    // Of a device without a rate only the clock knows when time is up.
    let deadline = args.seconds.filter(|_| frames.is_none()).map(Duration::from_secs_f64);
    let at_deadline = token.clone();
    stream
        .cancel(token)
        .progress(move |state: State| {
            if deadline.is_some_and(|deadline| state.elapsed >= deadline) {
                at_deadline.cancel();
            }
            meter.update(state);
        })
        .run()
}

/// Describes the file from the start on, in case that there is no end.
fn sidecar(args: &CaptureArgs, chosen: &Chosen) -> Result<Option<Sidecar>, Failure> {
    let Target::File(path) = &args.to else { return Ok(None) };
    let name = chosen.device.name();
    let sidecar = Sidecar::new(path, name, &chosen.channels, chosen.frame(), chosen.rate);
    sidecar.write(&[]).map_err(|error| cannot_describe(&sidecar, &error))?;
    Ok(Some(sidecar))
}

fn cannot_describe(sidecar: &Sidecar, error: &std::io::Error) -> Failure {
    Failure::new(
        FAILED,
        format!("{}: cannot write it: {error}", sidecar.path.display()),
        "the samples are where they belong; their description is not",
    )
}
