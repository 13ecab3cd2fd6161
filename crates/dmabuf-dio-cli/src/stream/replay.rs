// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio replay`.

use std::path::Path;

use dmabuf_dio::CancelToken;
use dmabuf_dio_stream::convert::Layout;
use dmabuf_dio_stream::{ConvertingSource, FdSource, IioSink, Source, Stream};
use dmabuf_dio_terminal::exit::{FAILED, Failure, USAGE, say};
use dmabuf_dio_terminal::signals;

use super::cyclic;
use super::device::Chosen;
use super::format::{self, converted};
use super::outcome;
use super::recorded::Recorded;
use super::report::Report;
use super::sigmf::names::{is_description, path_of};
use super::used::Used;
use crate::args::address::{Address, Use};
use crate::args::streams::ReplayArgs;

pub(crate) fn run(args: &ReplayArgs) -> Result<(), Failure> {
    let common = &args.common;
    used(&args.file).check_report(&common.report)?;
    if is_description(&args.file) {
        let what = format!("{} is a description and has no samples", args.file.display());
        return Err(Failure::new(USAGE, what, "name the file that it describes: NAME.sigmf-data"));
    }
    let from = address(args)?;
    let mut chosen = Chosen::find(&args.to, common)?;
    let token = signals::token();
    match from {
        Some(from) => play_stream(args, &from, &mut chosen, token),
        None => play_file(args, &mut chosen, token),
    }
}

/// The files that are read.
fn used(file: &Path) -> Used<'_> {
    let is_stdin = file == Path::new("-");
    let files = vec![file.into(), path_of(file)];
    Used { files, standard: is_stdin.then_some(Use::Read), series: None }
}

/// The address that `FROM` names; `None` if it is a file.
fn address(args: &ReplayArgs) -> Result<Option<Address>, Failure> {
    let Some(text) = args.file.to_str() else { return Ok(None) };
    let from = Address::parse(text, Use::Read)
        .map_err(|hint| Failure::new(USAGE, format!("samples cannot come from {text:?}"), hint))?;
    if let Some(from) = &from {
        if args.cyclic {
            let what = format!("{from} cannot be repeated");
            return Err(Failure::new(USAGE, what, "name a file, or leave out --cyclic"));
        }
        if args.force {
            let what = format!("{from} has no description that --force could override");
            return Err(Failure::new(USAGE, what, "name a file, or leave out --force"));
        }
    }
    Ok(from)
}

/// Outputs samples of another program.
fn play_stream(
    args: &ReplayArgs,
    from: &Address,
    chosen: &mut Chosen,
    token: CancelToken,
) -> Result<(), Failure> {
    let sink = IioSink::open(chosen.device.clone(), chosen.buffer, &chosen.channels)?;
    chosen.set_up(&args.common)?;
    let conversion = format::of_replay(args, None, chosen)?;
    let frame = file_frame(conversion.as_ref(), chosen);
    let (fd, name) = from.open(Use::Read, &token)?;
    let source = Box::new(FdSource::new(fd, name, frame)?);
    play(args, source, conversion, sink, chosen, token)
}

fn play_file(args: &ReplayArgs, chosen: &mut Chosen, token: CancelToken) -> Result<(), Failure> {
    let recorded = Recorded::find(args)?;
    let conversion = format::of_replay(args, recorded.described.as_ref(), chosen)?;
    let frame = file_frame(conversion.as_ref(), chosen);
    let source = Box::new(recorded.source(args, frame)?);
    let sink = IioSink::open(chosen.device.clone(), chosen.buffer, &chosen.channels)?;
    chosen.set_up(&args.common)?;
    let rate = recorded.described.as_ref().and_then(|described| described.rate);
    if let (None, Some(rate)) = (args.common.rate, rate) {
        set_described_rate(args, chosen, rate)?;
    }
    if !args.cyclic {
        return play(args, source, conversion, sink, chosen, token);
    }
    drop(sink);
    let result = cyclic::play(args, chosen, recorded.range(frame), conversion, &token);
    result.and(chosen.put_back())
}

/// Bytes per frame at the other end. `chosen` needs the number, too.
fn file_frame(conversion: Option<&(Layout, Layout)>, chosen: &mut Chosen) -> u64 {
    chosen.other_frame = conversion.map(|(file, _)| file.frame());
    chosen.other_frame.unwrap_or(chosen.frame())
}

fn play(
    args: &ReplayArgs,
    mut source: Box<dyn Source>,
    conversion: Option<(Layout, Layout)>,
    mut sink: IioSink,
    chosen: &mut Chosen,
    token: CancelToken,
) -> Result<(), Failure> {
    if let Some((from, to)) = conversion.clone() {
        source = Box::new(ConvertingSource::new(source, from, to)?);
    }
    let stream = Stream::new(&mut *source, &mut sink, chosen.ring(&args.common)?);
    let outcome = outcome::run(stream, &args.common, chosen, token, "replayed");
    let frames = outcome.summary.bytes / chosen.frame();
    let converted = conversion.map(|conversion| converted(&conversion, frames));
    let end = Report { converted, ..Report::of_replay(args, chosen) };
    let reported = outcome.report(&args.common, &end);
    drop(sink);
    reported.and(chosen.put_back())
}

/// Sets the described rate, if the device has a rate.
fn set_described_rate(args: &ReplayArgs, chosen: &mut Chosen, rate: f64) -> Result<(), Failure> {
    let Err(failure) = chosen.set_rate(rate) else { return Ok(()) };
    if args.force || chosen.rate.is_none() {
        say(&format!("dmabuf-dio: {}; the device keeps its rate", failure.what()));
        return Ok(());
    }
    let what = format!("the described rate, {rate}, cannot be set: {}", failure.what());
    Err(Failure::new(FAILED, what, "choose another: --rate; or keep the device's rate: --force"))
}
