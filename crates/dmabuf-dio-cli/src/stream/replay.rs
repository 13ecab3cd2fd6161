// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio replay`.

use std::time::{Duration, Instant};

use dmabuf_dio::{CancelToken, Kind, Loader};
use dmabuf_dio_stream::{
    Error, FileSource, Gap, IioSink, Loss, Repeat, RingUse, Source, Stream, Summary,
};
use rustix::time::{ClockId, clock_gettime};

use super::address::Address;
use super::args::ReplayArgs;
use super::capture::{run_stream, shortfall};
use super::device::Chosen;
use super::input;
use super::meter::Meter;
use super::report::{self, Report};
use super::sigmf::{self, Described};
use crate::exit::{FAILED, Failure, USAGE, say};
use crate::show::name_of;
use crate::signals;

/// The label of what the device could not output.
const UNDERRUNS: &str = "underruns";

pub(crate) fn run(args: &ReplayArgs) -> Result<(), Failure> {
    let common = &args.common;
    if sigmf::is_description(&args.file) {
        let what = format!("{} is a description and has no samples", args.file.display());
        return Err(Failure::new(USAGE, what, "name the file that it describes: NAME.sigmf-data"));
    }
    let from = input::address(&args.file)?;
    if let Some(from) = from.as_ref().filter(|_| args.cyclic) {
        let what = format!("{from} cannot be repeated");
        return Err(Failure::new(USAGE, what, "name a file, or leave out --cyclic"));
    }
    let mut chosen = Chosen::find(&args.to, common)?;
    let token = signals::token();
    if let Some(from) = from {
        return play_stream(args, &from, &mut chosen, token);
    }
    if args.framed {
        let what = format!("{} is a file, and has no framing", args.file.display());
        return Err(Failure::new(USAGE, what, "leave out --framed"));
    }
    let described = Described::of(&args.file);
    check(args, described.as_ref(), &chosen)?;
    let mut source = FileSource::open(&args.file, chosen.frame())?;
    let sink = IioSink::open(chosen.device.clone(), chosen.buffer, &chosen.channels)?;
    chosen.set_up(common.quiet)?;
    match (common.rate, described.and_then(|described| described.rate)) {
        (Some(rate), _) => chosen.set_rate(rate)?,
        (None, Some(rate)) => set_described_rate(&mut chosen, rate),
        (None, None) => {}
    }
    if args.cyclic {
        drop(sink);
        let result = cycle(args, &mut chosen, &token);
        return result.and(chosen.put_back());
    }
    play(args, &mut source, sink, &mut chosen, token)
}

/// Outputs samples of another program.
fn play_stream(
    args: &ReplayArgs,
    from: &Address,
    chosen: &mut Chosen,
    token: CancelToken,
) -> Result<(), Failure> {
    let sink = IioSink::open(chosen.device.clone(), chosen.buffer, &chosen.channels)?;
    chosen.set_up(args.common.quiet)?;
    if let Some(rate) = args.common.rate {
        chosen.set_rate(rate)?;
    }
    let mut source = if args.framed {
        let (source, text) = input::framed(from, &token)?;
        let described = Described::parse(&text);
        check(args, described.as_ref(), chosen)?;
        if let Some(rate) = described.and_then(|described| described.rate) {
            if args.common.rate.is_none() {
                set_described_rate(chosen, rate);
            }
        }
        source
    } else {
        input::raw(from, chosen.frame(), &token)?
    };
    play(args, &mut source, sink, chosen, token)
}

fn play(
    args: &ReplayArgs,
    source: &mut dyn Source,
    mut sink: IioSink,
    chosen: &mut Chosen,
    token: CancelToken,
) -> Result<(), Failure> {
    let common = &args.common;
    let ring = chosen.ring(common)?;
    chosen.keep();
    let meter = Meter::new("replayed", common.quiet);
    let stream = Stream::new(source, &mut sink, ring);
    let outcome = run_stream(stream, common, chosen, token, meter);
    let file = args.file.display().to_string();
    let lost = UNDERRUNS;
    let end = Report { chosen, other: &file, sidecar: None, lost, is_stdout: false };
    let reported = outcome.report(common, &end);
    drop(sink);
    reported.and(chosen.put_back())
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
fn cycle(args: &ReplayArgs, chosen: &mut Chosen, token: &CancelToken) -> Result<(), Failure> {
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
        ring: RingUse { block_bytes: length, blocks_at_start: 1, blocks_at_end: 1, most_blocks: 1 },
        ..Summary::default()
    };
    let (begin, cpu) = (Instant::now(), cpu_time());
    let device = chosen.device.clone();
    let repeat = Repeat::start(device, chosen.buffer, &chosen.channels, loaded.buf, length)?;
    chosen.keep();
    let deadline = args.common.seconds.map(Duration::from_secs_f64);
    while !token.is_cancelled() && deadline.is_none_or(|deadline| begin.elapsed() < deadline) {
        std::thread::sleep(Duration::from_millis(20));
    }
    // The device repeats the block by itself: only its own counter tells what it missed, not where.
    let lost = repeat.lost();
    repeat.stop()?;
    summary.seconds = begin.elapsed().as_secs_f64();
    summary.cpu_seconds = Some(cpu_time().saturating_sub(cpu).as_secs_f64());
    summary.loss_known = lost.is_some();
    summary.lost_frames = lost.unwrap_or(0);
    if summary.lost_frames > 0 {
        summary.gaps.push(Gap { kind: Loss::Underrun, at: 0, to: length, frames: lost });
    }
    let file = args.file.display().to_string();
    let lost = UNDERRUNS;
    let end = Report { chosen, other: &file, sidecar: None, lost, is_stdout: false };
    // Until Ctrl-C, or for as long as was asked.
    summary.complete = !token.is_cancelled() || args.common.seconds.is_none();
    let failure = shortfall(&args.common, &end, &summary);
    let printed = report::print(&args.common, &end, &summary, failure.as_ref());
    failure.map_or(printed, Err)
}

/// CPU time of all threads of the process.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
