// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio receive`.

use std::path::PathBuf;

use clap::Args;
use dmabuf_dio::DmaBuf;
use dmabuf_dio_stream::{Ring, Source as _, State, Stream, Summary};
use serde::Serialize;

use super::args::{EXIT_CODES, MaxLoss};
use super::capture::{Outcome, nobody};
use super::device::suitable;
use super::input;
use super::meter::Meter;
use super::received::Received;
use super::recording;
use super::report::{self, Printed, WORDS};
use super::sigmf;
use super::target::{Sent, Target};
use crate::exit::{FAILED, Failure, USAGE, say};
use crate::show::{Lines, json};
use crate::signals;
use crate::size::{parse_count, parse_size};

/// Blocks of the ring: while the file accepts nothing, the sender waits.
const BLOCKS: usize = 8;
const LARGEST: u64 = 4 << 20;

/// Receive samples from `dmabuf-dio capture` or another program into a file
#[derive(Debug, Args)]
#[command(after_help = format!("\
FROM is one of tcp-listen://[HOST]:PORT, tcp://HOST:PORT, unix-listen:PATH, unix:PATH, - for standard
input, or a FIFO. TO is as for `dmabuf-dio capture`.

A sender with --framed reports where samples are missing; the report and the description contain these
gaps. Other programs send raw samples: --raw.

Examples:
  dmabuf-dio receive tcp-listen://:5000 --to capture.sigmf-data
  dmabuf-dio receive tcp-listen://:5000 --raw --frame-bytes 4 --to samples.bin
  ssh radio dmabuf-dio capture adc --to - --framed | dmabuf-dio receive - --to capture.sigmf-data

{EXIT_CODES}"))]
#[expect(clippy::struct_excessive_bools, reason = "flags of the command line")]
pub(crate) struct ReceiveArgs {
    /// Source of the samples
    #[arg(value_name = "FROM")]
    from: PathBuf,
    /// Destination of the samples
    #[arg(long, value_name = "TO")]
    to: Target,
    /// The sender does not use the framing of dmabuf-dio: gaps and description are unknown
    #[arg(long)]
    raw: bool,
    /// Bytes of a frame of raw samples
    #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "raw", default_value = "1")]
    frame_bytes: u64,
    /// Replace an existing file and its description
    #[arg(long)]
    force: bool,
    /// Stop after this many frames: 1000000, 1M
    #[arg(long, value_name = "NUMBER", value_parser = parse_count)]
    samples: Option<u64>,
    /// Block size, whole frames [default: 1/8 s of samples, at most 4 MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    block: Option<u64>,
    /// Number of blocks
    #[arg(long, value_name = "NUMBER", default_value_t = BLOCKS)]
    blocks: usize,
    /// Exit with 1 if more is missing: frames (1000, 1M) or a percentage (0.1%)
    #[arg(long, value_name = "NUMBER", value_parser = MaxLoss::parse, default_value = "0")]
    max_loss: MaxLoss,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Write the report to this file, as JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Print errors only
    #[arg(long, short, conflicts_with = "json")]
    quiet: bool,
}

/// The output of `--json`.
#[derive(Debug, Serialize)]
struct Output<'a> {
    schema: u32,
    from: &'a str,
    /// The file or address that the samples went to.
    other: &'a str,
    framed: bool,
    frame_bytes: u64,
    rate: Option<f64>,
    frames: u64,
    asked_frames: Option<u64>,
    #[serde(flatten)]
    summary: &'a Summary,
    description: Option<String>,
    /// Why the command fails.
    error: Option<String>,
}

pub(crate) fn run(args: &ReceiveArgs) -> Result<(), Failure> {
    let file = recording::pair(&args.to, args.force)?;
    let from = input::address(&args.from)?.ok_or_else(|| {
        let what = format!("{} is a file", args.from.display());
        Failure::new(USAGE, what, "name where samples arrive: tcp-listen://:5000, - or a FIFO")
    })?;
    if args.frame_bytes == 0 {
        return Err(Failure::new(USAGE, "--frame-bytes cannot be 0", "write 1 or more"));
    }
    let token = signals::token();
    let (mut source, described) = if args.raw {
        (input::raw(&from, args.frame_bytes, &token)?, None)
    } else {
        let (source, text) = input::framed(&from, &token)?;
        let described = Received::parse(&text, source.frame());
        if described.is_none() {
            say("dmabuf-dio: the sender does not describe its samples: there is no description");
        }
        (source, described)
    };
    let frame = source.frame();
    let ring = ring(args, frame, described.as_ref().and_then(Received::rate))?;
    let samples = Sent { frame, description: None };
    let mut target = args.to.open(samples, &token)?.ok_or_else(nobody)?;
    let described = described.zip(file);
    if let Some((received, data)) = &described {
        // In case the process is killed.
        received.write(data, &[], 0).map_err(|error| cannot_describe(&error))?;
    }
    let mut meter = Meter::new("received", args.quiet);
    let stream = Stream::new(&mut source, &mut *target.sink, ring);
    let stream = match args.samples {
        Some(frames) => stream.limit(frames.saturating_mul(frame)),
        None => stream,
    };
    let stream = stream.cancel(token).progress(move |state: State| meter.update(state));
    let outcome = Outcome::of(stream.run());
    let mut summary = outcome.summary;
    // The losses of a sender of raw samples are unknown.
    summary.loss_known &= !args.raw;
    let nothing = summary.bytes == 0 && !summary.complete;
    if let Some(data) = file.filter(|_| nothing) {
        // Empty files would only obstruct the next capture.
        let _ = std::fs::remove_file(data);
        let _ = std::fs::remove_file(sigmf::path_of(data));
    }
    let described = described.filter(|_| !nothing);
    let written = described
        .as_ref()
        .map(|(received, data)| received.write(data, &summary.gaps, summary.bytes))
        .transpose();
    let failure = outcome.error.map(Failure::from).or_else(|| shortfall(args, frame, &summary));
    let path = written.as_ref().ok().and_then(Option::as_ref);
    let (other, name) = (args.to.to_string(), from.to_string());
    let output = Output {
        schema: 1,
        from: &name,
        other: &other,
        framed: !args.raw,
        frame_bytes: frame,
        rate: described.as_ref().and_then(|(received, _)| received.rate()),
        frames: summary.bytes / frame,
        asked_frames: args.samples,
        summary: &summary,
        description: path.map(|path| path.display().to_string()),
        error: failure.as_ref().map(|failure| failure.what().to_owned()),
    };
    let device = described.as_ref().map(|(received, _)| received.device());
    let (file, is_stdout) = (args.report.as_deref(), target.is_stdout);
    let printed = Printed { quiet: args.quiet, json: args.json, file, is_stdout };
    let printed = report::put(&printed, &|| json(&output), &|| human(&output, device));
    failure.map_or(printed, Err)?;
    written.map(|_| ()).map_err(|error| cannot_describe(&error))
}

fn cannot_describe(error: &std::io::Error) -> Failure {
    let what = format!("the description cannot be written: {error}");
    Failure::new(FAILED, what, "check the folder and its free space")
}

/// Blocks that samples are copied to. No device fills them, so pages of a memfd suffice, which any
/// user can allocate.
fn ring(args: &ReceiveArgs, frame: u64, rate: Option<f64>) -> Result<Ring, Failure> {
    let size = args.block.unwrap_or_else(|| match rate {
        None => LARGEST.max(frame) / frame * frame,
        rate => suitable(frame, rate).min((LARGEST / frame).max(1) * frame),
    });
    if size % frame != 0 {
        let what = format!("--block {size} is not a multiple of the frame size, {frame} bytes");
        return Err(Failure::new(USAGE, what, "choose a multiple of it"));
    }
    let blocks = (0..args.blocks).map(|_| DmaBuf::memfd(size)).collect::<Result<_, _>>()?;
    Ok(Ring::of(blocks, size)?)
}

/// The failure of a stream that ended cleanly, but with less than was requested or sent.
fn shortfall(args: &ReceiveArgs, frame: u64, summary: &Summary) -> Option<Failure> {
    let frames = summary.bytes / frame;
    if !summary.complete && (args.samples.is_some() || frames == 0) {
        let what = format!("only {frames} frames were received");
        return Some(Failure::new(FAILED, what, "see the sender's messages"));
    }
    if args.max_loss.allows(&summary.gaps, frames) {
        return None;
    }
    let what =
        format!("more is missing than --max-loss {}: {}", args.max_loss, report::lost(summary));
    let hint = "the sender lost it: choose a lower rate or a faster network; or allow it";
    Some(Failure::new(FAILED, what, hint))
}

fn human(output: &Output<'_>, device: Option<&str>) -> String {
    let mut lines = Lines::new(WORDS);
    lines.line("from", output.from);
    if let Some(device) = device {
        let rate = output.rate.map_or_else(String::new, |rate| format!(", {rate} per second"));
        lines.line("device", format!("{device}; frames of {} bytes{rate}", output.frame_bytes));
    }
    lines.line("file", output.other);
    lines.line("filled by", &output.summary.source);
    lines.line("emptied by", &output.summary.sink);
    report::outcome(&mut lines, output.summary, output.frame_bytes, "lost");
    if let Some(path) = &output.description {
        lines.line("described", format!("{path} (SigMF)"));
    }
    lines.into_text()
}
