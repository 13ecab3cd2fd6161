// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio replay`.

use std::time::{Duration, Instant};

use dmabuf_dio::stream::{FileSource, IioSink, Repeat, Stream, Summary};
use dmabuf_dio::{CancelToken, Kind, Loader};

use super::args::ReplayArgs;
use super::capture::pump;
use super::device::Chosen;
use super::meter::Meter;
use super::{report, sigmf};
use crate::exit::{FAILED, Failure};
use crate::signals;

pub(crate) fn run(args: &ReplayArgs) -> Result<(), Failure> {
    let common = &args.common;
    let rate = common.rate.or_else(|| sigmf::rate_of(&args.file));
    let chosen = Chosen::find(&args.to, common, rate)?;
    let token = signals::token();
    if args.cyclic {
        return cycle(args, &chosen, &token);
    }
    let ring = chosen.ring(common)?;
    let mut sink = IioSink::open(chosen.device.clone(), chosen.buffer, &chosen.channels)?;
    let mut source = FileSource::open(&args.file, chosen.frame())?;
    let meter = Meter::new("replayed", common.quiet);
    let stream = Stream::new(&mut source, &mut sink, ring);
    let (summary, error) = match pump(stream, common, &chosen, token, meter) {
        Ok(summary) => (summary, None),
        Err(interrupted) => (interrupted.summary, Some(interrupted.error)),
    };
    report::print(common, &chosen, &summary, None)?;
    error.map_or(Ok(()), |error| Err(error.into()))
}

/// Gives the device all of the file at once, to be put out over and over.
fn cycle(args: &ReplayArgs, chosen: &Chosen, token: &CancelToken) -> Result<(), Failure> {
    let loaded = Loader::new(&args.file).cancel(token.clone()).load()?;
    if loaded.buf.kind() != Kind::DmaBuf {
        let what = "there is no dma-buf for the device: all this system has is a memfd";
        return Err(Failure::new(FAILED, what, "see why: dmabuf-dio doctor"));
    }
    let mut summary = Summary {
        source: format!("{}, by {}", args.file.display(), loaded.report.backend),
        sink: "IIO, dma-buf, over and over".into(),
        bytes: loaded.len,
        ..Summary::default()
    };
    let begin = Instant::now();
    let device = chosen.device.clone();
    let repeat = Repeat::start(device, chosen.buffer, &chosen.channels, loaded.buf, loaded.len)?;
    let deadline = args.common.seconds.map(Duration::from_secs_f64);
    while !token.is_cancelled() && deadline.is_none_or(|deadline| begin.elapsed() < deadline) {
        std::thread::sleep(Duration::from_millis(20));
    }
    repeat.stop()?;
    summary.seconds = begin.elapsed().as_secs_f64();
    report::print(&args.common, chosen, &summary, None)
}
