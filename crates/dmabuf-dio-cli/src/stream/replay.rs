// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio replay`.

use std::path::Path;
use std::time::{Duration, Instant};

use dmabuf_dio::{Buffer, CancelToken, Kind, Loader};
use dmabuf_dio_stream::convert::{Converter, Layout};
use dmabuf_dio_stream::{
    Converted, ConvertingSource, Error, FileSource, Gap, IioSink, Loss, Reading, Repeat, RingUse,
    Source, Stream, Summary,
};
use dmabuf_dio_terminal::exit::{FAILED, Failure, USAGE, say};
use dmabuf_dio_terminal::signals;
use rustix::time::{ClockId, clock_gettime};

use super::address::{Address, Use};
use super::archive;
use super::args::{ReplayArgs, Used};
use super::capture::{run_stream, shortfall};
use super::device::Chosen;
use super::format;
use super::input;
use super::meter::Meter;
use super::promises;
use super::repair;
use super::report::{self, Report};
use super::sigmf::{self, Described};
use crate::show::name_of;

/// Bytes that are copied at a time.
const COPIED: u64 = 1 << 20;
/// The label for frames that the device could not output.
const UNDERRUNS: &str = "underruns";

pub(crate) fn run(args: &ReplayArgs) -> Result<(), Failure> {
    let common = &args.common;
    common.check_report(&used(&args.file))?;
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
    let (found, described) = find(args)?;
    let conversion = format::of_replay(args, described.as_ref(), &chosen)?;
    let frame = file_frame(conversion.as_ref(), &mut chosen);
    // A killed capture may have cut a frame.
    let part = found
        .map(|Part { start, bytes, cut }| (start, if cut { bytes / frame * frame } else { bytes }));
    let source = match part {
        None => FileSource::open(&args.file, frame)?,
        Some((start, bytes)) => FileSource::open_part(&args.file, frame, start, bytes)?,
    };
    if source.facts().len == Some(0) {
        return Err(nothing(&args.file.display().to_string()));
    }
    let sink = IioSink::open(chosen.device.clone(), chosen.buffer, &chosen.channels)?;
    chosen.set_up(common.quiet)?;
    match (common.rate, described.and_then(|described| described.rate)) {
        (Some(rate), _) => chosen.set_rate(rate)?,
        (None, Some(rate)) => set_described_rate(args, &mut chosen, rate)?,
        (None, None) => {}
    }
    if args.cyclic {
        drop(sink);
        let result = cycle(args, &mut chosen, part, conversion, &token);
        return result.and(chosen.put_back());
    }
    play(args, Box::new(source), conversion, sink, &mut chosen, token)
}

/// The files that are read.
fn used(file: &Path) -> Used<'_> {
    let is_stdin = file == Path::new("-");
    let files = vec![file.into(), sigmf::path_of(file)];
    Used { files, standard: is_stdin.then_some(Use::Read), series: None }
}

/// There is no sample to output.
fn nothing(from: &str) -> Failure {
    Failure::new(
        FAILED,
        format!("{from} has no samples: nothing was output"),
        "choose another file",
    )
}

/// Bytes per frame at the other end, which `chosen` has to know, too.
fn file_frame(conversion: Option<&(Layout, Layout)>, chosen: &mut Chosen) -> u64 {
    chosen.other_frame = conversion.map(|(file, _)| file.frame());
    chosen.other_frame.unwrap_or(chosen.frame())
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
    let conversion = format::of_replay(args, None, chosen)?;
    let frame = file_frame(conversion.as_ref(), chosen);
    let source = input::raw(from, frame, &token)?;
    play(args, Box::new(source), conversion, sink, chosen, token)
}

fn play(
    args: &ReplayArgs,
    source: Box<dyn Source>,
    conversion: Option<(Layout, Layout)>,
    mut sink: IioSink,
    chosen: &mut Chosen,
    token: CancelToken,
) -> Result<(), Failure> {
    let common = &args.common;
    let (mut plain, mut converting) = match conversion {
        None => (Some(source), None),
        Some((from, to)) => (None, Some(ConvertingSource::new(source, from, to)?)),
    };
    let source: &mut dyn Source = match (&mut plain, &mut converting) {
        (Some(plain), _) => &mut **plain,
        (None, Some(converting)) => converting,
        (None, None) => return Err(Failure::new(FAILED, "there is no source", "")),
    };
    let ring = chosen.ring(common)?;
    let meter = Meter::new("replayed", common.quiet);
    let stream = Stream::new(source, &mut sink, ring);
    let outcome = run_stream(stream, common, chosen, token, meter);
    if outcome.summary.bytes > 0 {
        chosen.keep();
    }
    let converted = converting.as_ref().map(ConvertingSource::converted);
    let reported = outcome.report(common, &end(args, chosen, converted.as_ref()));
    drop(sink);
    reported.and(chosen.put_back())
}

fn end<'a>(
    args: &'a ReplayArgs,
    chosen: &'a Chosen,
    converted: Option<&'a Converted>,
) -> Report<'a> {
    let other = args.file.to_str().unwrap_or("a file");
    Report {
        chosen,
        other,
        sidecar: None,
        converted,
        pieces: None,
        lost: UNDERRUNS,
        is_stdout: false,
        is_moved_known: true,
    }
}

/// Where the samples are in the file, if it is an archive.
#[derive(Clone, Copy)]
struct Part {
    /// The first byte, and the number of bytes.
    start: u64,
    bytes: u64,
    /// The last frame may be cut.
    cut: bool,
}

/// Where the samples are, and their description.
fn find(args: &ReplayArgs) -> Result<(Option<Part>, Option<Described>), Failure> {
    let (file, shown) = (&args.file, args.file.display());
    let (mut name, mut is_short, mut part, mut range) = (None, false, None, (0, u64::MAX));
    let value = if archive::is_archive(file) {
        let found = archive::find(file).map_err(|error| {
            let what = format!("{shown}: cannot read the archive: {error}");
            let hint =
                "it must be an uncompressed tar file of one recording, as SigMF specifies it";
            Failure::new(FAILED, what, hint)
        })?;
        let archive::Found { start, bytes, cut, .. } = found;
        if cut {
            say(&format!(
                "dmabuf-dio: {shown} ends early, its {bytes} bytes of samples are output"
            ));
        }
        let known = found.description["global"][sigmf::UNFINISHED].as_u64();
        if let Some(known) = known {
            say(&format!(
                "dmabuf-dio: the capture of {shown} had not ended: whether samples are missing after \
                 its first {known} frames is not known"
            ));
        }
        (is_short, range) = (cut, (start, start + bytes));
        part = Some(Part { start, bytes, cut: cut || known.is_some() });
        name = Some(found.name);
        found.description
    } else {
        let path = sigmf::path_of(file);
        repair::repair(file);
        let read = match std::fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok((None, None)),
            read => read.map_err(|error| error.to_string()),
        };
        let value = match read.and_then(|bytes| promises::parse(&bytes)) {
            Ok(value) => value,
            Err(why) => {
                refuse(args, &format!("{}: {why}", path.display()))?;
                return Ok((None, None));
            }
        };
        let other = sigmf::described(file, &value).filter(|other| other != file && other.exists());
        if let Some(other) = other {
            let (path, other) = (path.display(), other.display());
            refuse(args, &format!("{path} describes another file, {other}"))?;
            return Ok((None, None));
        }
        value
    };
    let samples = promises::Samples {
        file,
        part: range,
        name: name.as_deref(),
        cut: is_short,
        with_rate: args.common.rate.is_none(),
        with_format: args.format.is_none(),
    };
    for why in promises::broken(&value, &samples)? {
        refuse(args, &format!("the description of {shown}: {why}"))?;
    }
    Ok((part, Some(Described::of_value(&value))))
}

/// Refuses what a description says and cannot be honoured. With `--force`, says what is overridden.
fn refuse(args: &ReplayArgs, why: &str) -> Result<(), Failure> {
    if args.force {
        say(&format!("dmabuf-dio: --force overrides {why}"));
        return Ok(());
    }
    let hint = "correct the description, or output the bytes unchanged: --force";
    Err(Failure::new(USAGE, why, hint))
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

/// Hands the whole file to the device in one block, which the device repeats.
fn cycle(
    args: &ReplayArgs,
    chosen: &mut Chosen,
    part: Option<(u64, u64)>,
    conversion: Option<(Layout, Layout)>,
    token: &CancelToken,
) -> Result<(), Failure> {
    let mut loader = Loader::new(&args.file).kind(Kind::DmaBuf).cancel(token.clone());
    if conversion.is_some() {
        // What the device gets is another buffer.
        loader = loader.kind(Kind::Any);
    }
    if let Some((start, bytes)) = part {
        loader = loader.offset(start).length(bytes);
    }
    let mut buf = loader.load().map_err(|error| match error {
        dmabuf_dio::Error::Unavailable { asked: None, .. } => no_dma_buf(),
        error => error.into(),
    })?;
    let source = buf.report().map_or_else(String::new, |report| name_of(report).to_string());
    let frame = conversion.as_ref().map_or(chosen.frame(), |(file, _)| file.frame());
    let mut length = buf.data_len();
    if length % frame != 0 {
        return Err(Error::CutFrame { path: args.file.clone(), length, frame }.into());
    }
    let mut converted = None;
    if let Some((from, to)) = conversion {
        let frames = length / frame;
        let what;
        (buf, what) = convert(&buf, frames, Converter::new(from, to)?)?;
        length = frames * what.to_frame_bytes;
        converted = Some(what);
    }
    let (buf, times) = whole_cycle(buf, length, chosen)?;
    length *= times;
    let again = if times > 1 {
        let align = chosen.device.block_align(chosen.buffer, 1);
        format!(": {times} times the file, as the DMA transfers multiples of {align} bytes")
    } else {
        String::new()
    };
    let mut summary = Summary {
        source: format!("{source}, one block{again}"),
        sink: "IIO, dma-buf, cyclic".into(),
        ring: RingUse { block_bytes: length, blocks_at_start: 1, blocks_at_end: 1, most_blocks: 1 },
        ..Summary::default()
    };
    let (begin, cpu) = (Instant::now(), cpu_time());
    let device = chosen.device.clone();
    let repeat = Repeat::start(device, chosen.buffer, &chosen.channels, buf, length)?;
    chosen.keep();
    let deadline = args.common.seconds.map(Duration::from_secs_f64);
    while !token.is_cancelled() && deadline.is_none_or(|deadline| begin.elapsed() < deadline) {
        std::thread::sleep(Duration::from_millis(20));
        repeat.check()?;
    }
    // The device repeats the block by itself: only its own counter tells what it missed, not where.
    let lost = repeat.lost();
    repeat.stop()?;
    // What it has repeated only the device knows, too.
    let moved = chosen.device.read("moved_frames").ok().and_then(|frames| frames.parse().ok());
    summary.bytes = moved.map_or(0, |frames: u64| frames.saturating_mul(chosen.frame()));
    summary.seconds = begin.elapsed().as_secs_f64();
    summary.cpu_seconds = Some(cpu_time().saturating_sub(cpu).as_secs_f64());
    summary.loss_known = lost != Reading::Nothing;
    summary.lost_frames = lost.count().unwrap_or(0);
    if summary.lost_frames > 0 || lost == Reading::Noted(true) {
        let frames = lost.count();
        summary.gaps.push(Gap { kind: Loss::Underrun, at: 0, to: length, frames });
    }
    let end = Report { is_moved_known: moved.is_some(), ..end(args, chosen, converted.as_ref()) };
    // Until Ctrl-C, or for the requested time.
    summary.complete = !token.is_cancelled() || args.common.seconds.is_none();
    let failure = shortfall(&args.common, &end, &summary);
    let printed = report::print(&args.common, &end, &summary, failure.as_ref());
    failure.map_or(printed, Err)
}

fn no_dma_buf() -> Failure {
    let what = "the device needs a dma-buf, but this system has only memfds";
    Failure::new(FAILED, what, "dmabuf-dio doctor says why")
}

/// As many copies of the first `bytes` bytes one after the other as fill whole transfers of the
/// device's DMA, which repeats them without a seam. Returns their number, too.
fn whole_cycle(from: Buffer, bytes: u64, chosen: &Chosen) -> Result<(Buffer, u64), Failure> {
    let align = chosen.device.block_align(chosen.buffer, chosen.frame());
    let (mut divisor, mut rest) = (align, bytes);
    while rest > 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    let times = align / divisor;
    if times == 1 {
        return Ok((from, 1));
    }
    let whole = bytes.checked_mul(times).ok_or_else(|| {
        let what =
            format!("{bytes} bytes cannot be repeated: the DMA transfers multiples of {align}");
        Failure::new(FAILED, what, "choose a length that is such a multiple")
    })?;
    let mut to = Buffer::alloc_kind(Kind::DmaBuf, "system", whole)?;
    let (input, mut output) = (from.map()?, to.map_mut()?);
    let mut piece = vec![0; bytes.min(COPIED) as usize];
    for at in (0..bytes).step_by(COPIED as usize) {
        let piece = &mut piece[..COPIED.min(bytes - at) as usize];
        input.read_at(at, piece)?;
        for copy in 0..times {
            output.write_at(copy * bytes + at, piece)?;
        }
    }
    output.finish()?;
    input.finish()?;
    Ok((to, times))
}

/// Converts the whole of a buffer.
fn convert(
    from: &Buffer,
    frames: u64,
    mut converter: Converter,
) -> Result<(Buffer, Converted), Failure> {
    let (frame, out_frame) = (converter.from().frame(), converter.to().frame());
    let what = Converted {
        from: converter.from().to_string(),
        to: converter.to().to_string(),
        from_frame_bytes: frame,
        to_frame_bytes: out_frame,
        frames,
    };
    let mut to = Buffer::alloc_kind(Kind::DmaBuf, "system", frames * out_frame)?;
    let (input, mut output) = (from.map()?, to.map_mut()?);
    let step = ((1 << 20) / frame.max(out_frame)).max(1);
    let mut before = vec![0; (step * frame) as usize];
    let mut after = vec![0; (step * out_frame) as usize];
    for first in (0..frames).step_by(step as usize) {
        let count = step.min(frames - first);
        let before = &mut before[..(count * frame) as usize];
        let after = &mut after[..(count * out_frame) as usize];
        input.read_at(first * frame, before)?;
        converter.convert(before, after);
        output.write_at(first * out_frame, after)?;
    }
    output.finish()?;
    input.finish()?;
    Ok((to, what))
}

/// CPU time of all threads of the process.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
