// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio replay --cyclic`: one block, which the device repeats by itself.

use std::time::{Duration, Instant};

use dmabuf_dio::{Buffer, CancelToken, Kind, Loader};
use dmabuf_dio_stream::convert::{Converter, Layout};
use dmabuf_dio_stream::{Converted, Error, Gap, Loss, Reading, Repeat, RingUse, Summary};
use dmabuf_dio_terminal::exit::{FAILED, Failure};
use rustix::time::{ClockId, clock_gettime};

use super::device::Chosen;
use super::format::converted;
use super::outcome::Outcome;
use super::report::Report;
use crate::args::streams::ReplayArgs;
use crate::show::name_of;

/// Bytes that are copied at a time.
const COPIED: u64 = 1 << 20;

/// The block, and how it came about.
struct Block {
    buf: Buffer,
    length: u64,
    source: String,
    converted: Option<Converted>,
}

/// Hands the whole file to the device in one block, which the device repeats.
pub(super) fn play(
    args: &ReplayArgs,
    chosen: &mut Chosen,
    part: Option<(u64, u64)>,
    conversion: Option<(Layout, Layout)>,
    token: &CancelToken,
) -> Result<(), Failure> {
    let Block { buf, length, source, converted } = block(args, chosen, part, conversion, token)?;
    let (begin, cpu) = (Instant::now(), cpu_time());
    let device = chosen.device.clone();
    let repeat = Repeat::start(device, chosen.buffer, &chosen.channels, buf, length)?;
    chosen.keep();
    let deadline = args.common.seconds.map(Duration::from_secs_f64);
    while !token.is_cancelled() && deadline.is_none_or(|deadline| begin.elapsed() < deadline) {
        std::thread::sleep(Duration::from_millis(20));
        repeat.check()?;
    }
    // The device repeats the block by itself. Its counter tells how many frames it missed, but not
    // where.
    let lost = repeat.lost();
    repeat.stop()?;
    // Only the device knows how often it has repeated the block.
    let moved = chosen.device.read("moved_frames").ok().and_then(|frames| frames.parse().ok());
    let lost_frames = lost.count().unwrap_or(0);
    let is_underrun = lost_frames > 0 || lost == Reading::Noted(true);
    let gap = Gap { kind: Loss::Underrun, at: 0, to: length, frames: lost.count() };
    let summary = Summary {
        source,
        sink: "IIO, dma-buf, cyclic".into(),
        ring: RingUse { block_bytes: length, blocks_at_start: 1, blocks_at_end: 1, most_blocks: 1 },
        bytes: moved.map_or(0, |frames: u64| frames.saturating_mul(chosen.frame())),
        seconds: begin.elapsed().as_secs_f64(),
        cpu_seconds: Some(cpu_time().saturating_sub(cpu).as_secs_f64()),
        loss_known: lost != Reading::Nothing,
        lost_frames,
        gaps: if is_underrun { vec![gap] } else { Vec::new() },
        // Until Ctrl-C, or for the requested time.
        complete: !token.is_cancelled() || args.common.seconds.is_none(),
        ..Summary::default()
    };
    let is_moved_known = moved.is_some();
    let end = Report { converted, is_moved_known, ..Report::of_replay(args, chosen) };
    Outcome { summary, error: None }.report(&args.common, &end)
}

/// Loads the file, converts it, and repeats it until it fills whole transfers.
fn block(
    args: &ReplayArgs,
    chosen: &Chosen,
    part: Option<(u64, u64)>,
    conversion: Option<(Layout, Layout)>,
    token: &CancelToken,
) -> Result<Block, Failure> {
    let mut buf = load(args, part, conversion.is_some(), token)?;
    let mut source = buf.report().map_or_else(String::new, |report| name_of(report).to_string());
    source += ", one block";
    let frame = conversion.as_ref().map_or(chosen.frame(), |(file, _)| file.frame());
    let mut length = buf.data_len();
    if length % frame != 0 {
        return Err(Error::CutFrame { path: args.file.clone(), length, frame }.into());
    }
    let mut what = None;
    if let Some(conversion) = conversion {
        let done = converted(&conversion, length / frame);
        buf = convert(&buf, done.frames, Converter::new(conversion.0, conversion.1)?)?;
        length = done.frames * done.to_frame_bytes;
        what = Some(done);
    }
    let (buf, times) = whole_cycle(buf, length, chosen)?;
    if times > 1 {
        let align = chosen.device.block_align(chosen.buffer, 1);
        source +=
            &format!(": {times} times the file, as the DMA transfers multiples of {align} bytes");
    }
    Ok(Block { buf, length: length * times, source, converted: what })
}

fn load(
    args: &ReplayArgs,
    part: Option<(u64, u64)>,
    is_converted: bool,
    token: &CancelToken,
) -> Result<Buffer, Failure> {
    // A conversion writes to another buffer, which the device gets.
    let kind = if is_converted { Kind::Any } else { Kind::DmaBuf };
    let mut loader = Loader::new(&args.file).kind(kind).cancel(token.clone());
    if let Some((start, bytes)) = part {
        loader = loader.offset(start).length(bytes);
    }
    loader.load().map_err(|error| match error {
        dmabuf_dio::Error::Unavailable { asked: None, .. } => {
            let what = "the device needs a dma-buf, but this system has only memfds";
            Failure::new(FAILED, what, "dmabuf-dio doctor says why")
        }
        error => error.into(),
    })
}

/// Repeats the first `bytes` bytes until they fill whole transfers of the device's DMA, which then
/// has no seam. Also returns the number of copies.
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
fn convert(from: &Buffer, frames: u64, mut converter: Converter) -> Result<Buffer, Failure> {
    let (frame, out_frame) = (converter.from().frame(), converter.to().frame());
    let mut to = Buffer::alloc_kind(Kind::DmaBuf, "system", frames * out_frame)?;
    let (input, mut output) = (from.map()?, to.map_mut()?);
    let step = (COPIED / frame.max(out_frame)).max(1);
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
    Ok(to)
}

/// CPU time of all threads of the process.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
