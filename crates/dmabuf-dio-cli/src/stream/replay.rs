// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio replay`.

use std::time::{Duration, Instant};

use dmabuf_dio::{CancelToken, Kind, Loader};
use dmabuf_dio_stream::{Error, FileSource, IioSink, Repeat, Stream, Summary};

use super::args::ReplayArgs;
use super::capture::run_stream;
use super::device::Chosen;
use super::meter::Meter;
use super::report::{self, Report};
use super::sigmf::{self, Described};
use crate::exit::{FAILED, Failure, USAGE, say};
use crate::show::name_of;
use crate::signals;

pub(crate) fn run(args: &ReplayArgs) -> Result<(), Failure> {
    let common = &args.common;
    if sigmf::is_description(&args.file) {
        let what = format!("{} is a description and has no samples", args.file.display());
        return Err(Failure::new(USAGE, what, "name the file that it describes: NAME.sigmf-data"));
    }
    let mut chosen = Chosen::find(&args.to, common)?;
    let described = Described::of(&args.file);
    check(args, described.as_ref(), &chosen)?;
    let mut source = FileSource::open(&args.file, chosen.frame())?;
    let sink = IioSink::open(chosen.device.clone(), chosen.buffer, &chosen.channels)?;
    match (common.rate, described.and_then(|described| described.rate)) {
        (Some(rate), _) => chosen.set_rate(rate)?,
        (None, Some(rate)) => set_described_rate(&mut chosen, rate),
        (None, None) => {}
    }
    let token = signals::token();
    if args.cyclic {
        drop(sink);
        return cycle(args, &chosen, &token);
    }
    let mut sink = sink;
    let ring = chosen.ring(common)?;
    let meter = Meter::new("replayed", common.quiet);
    let stream = Stream::new(&mut source, &mut sink, ring);
    let outcome = run_stream(stream, common, &chosen, token, meter);
    let file = args.file.display().to_string();
    outcome.report(common, &Report { chosen: &chosen, other: &file, sidecar: None })
}

/// Refuses samples of another format, which would be noise on an antenna.
fn check(args: &ReplayArgs, described: Option<&Described>, chosen: &Chosen) -> Result<(), Failure> {
    let why = described.and_then(|file| file.mismatch(&chosen.channels, chosen.frame()));
    match why.filter(|_| !args.force) {
        None => Ok(()),
        Some(why) => Err(Failure::new(
            USAGE,
            format!("{} does not fit {}: {why}", args.file.display(), chosen.device.name()),
            "choose other channels (--channels) or another file, or output it anyway: --force",
        )),
    }
}

/// Sets the described rate. If that fails, prints a warning and keeps the device's rate.
fn set_described_rate(chosen: &mut Chosen, rate: f64) {
    if let Err(failure) = chosen.set_rate(rate) {
        say(&format!("dmabuf-dio: {}; the device keeps its rate", failure.what()));
    }
}

/// Hands the whole file to the device in one block, which the device repeats.
fn cycle(args: &ReplayArgs, chosen: &Chosen, token: &CancelToken) -> Result<(), Failure> {
    let loaded = Loader::new(&args.file).any_kind().cancel(token.clone()).load()?;
    let (length, frame) = (loaded.len, chosen.frame());
    if length % frame != 0 {
        return Err(Error::CutFrame { path: args.file.clone(), length, frame }.into());
    }
    if loaded.buf.kind() != Kind::DmaBuf {
        let what = "the device needs a dma-buf, but this system has only memfds";
        return Err(Failure::new(FAILED, what, "dmabuf-dio doctor says why"));
    }
    let mut summary = Summary {
        source: format!("{}, one block", name_of(&loaded.report)),
        sink: "IIO, dma-buf, cyclic".into(),
        bytes: length,
        loss_known: true,
        ..Summary::default()
    };
    let begin = Instant::now();
    let device = chosen.device.clone();
    let repeat = Repeat::start(device, chosen.buffer, &chosen.channels, loaded.buf, length)?;
    let deadline = args.common.seconds.map(Duration::from_secs_f64);
    while !token.is_cancelled() && deadline.is_none_or(|deadline| begin.elapsed() < deadline) {
        std::thread::sleep(Duration::from_millis(20));
    }
    repeat.stop()?;
    summary.seconds = begin.elapsed().as_secs_f64();
    let file = args.file.display().to_string();
    let end = Report { chosen, other: &file, sidecar: None };
    report::print(&args.common, &end, &summary, None)
}
