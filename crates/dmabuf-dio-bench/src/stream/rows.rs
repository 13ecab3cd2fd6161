// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rows, and a run of a row.

use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use dmabuf_dio::Buffer;
use dmabuf_dio_cli::exit::Failure;
use dmabuf_dio_stream::{BlockRing, Discard, Error, FileSink, IioSource, Sink, Stream, UsbSink};
use rustix::fs::OFlags;
use serde::Serialize;

use super::args::StreamArgs;
use super::device::Adc;
use super::fileio::{DeviceReader, SinkWriter, first_wrong_frame, open};
use super::results::StreamSample;
use super::usb::Usb;
use crate::buffer::{BufferKind, Maker};
use crate::measure::clock::{Clock, Mark};
use crate::measure::outcome::{Status, Trouble, os};
use crate::measure::phase::{self, Phase};
use crate::measure::select::select;
use crate::measure::time::Start;

/// Least blocks of a ring.
const COUNT: u64 = 4;
/// Most blocks: each takes up to three descriptors, of which a process usually has 1024.
const MOST: u64 = 256;

/// How the program receives samples and passes them on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum StreamMethod {
    #[serde(rename = "read()")]
    Fileio,
    /// The file is opened with `O_DIRECT`.
    #[serde(rename = "read(), O_DIRECT")]
    FileioDirect,
    #[serde(rename = "dma-buf")]
    DmaBuf,
    /// dma-bufs over memfds, whose pages have 4 KiB.
    #[serde(rename = "udmabuf")]
    Udmabuf,
    /// libiio's program, with dma-bufs of its own.
    #[serde(rename = "iio_rwdev")]
    Rwdev,
}

/// The destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Destination {
    Nothing,
    File,
    Usb,
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamRow {
    pub(crate) method: StreamMethod,
    pub(crate) to: Destination,
    pub(crate) block: u64,
}

impl StreamRow {
    /// Every row, for blocks of these sizes.
    pub(crate) fn all(blocks: &[u64], peer: bool) -> Vec<Self> {
        let methods: Vec<_> = [
            (Destination::Nothing, StreamMethod::Fileio),
            (Destination::Nothing, StreamMethod::DmaBuf),
            (Destination::Nothing, StreamMethod::Udmabuf),
            (Destination::Nothing, StreamMethod::Rwdev),
            (Destination::File, StreamMethod::Fileio),
            (Destination::File, StreamMethod::FileioDirect),
            (Destination::File, StreamMethod::DmaBuf),
            (Destination::File, StreamMethod::Udmabuf),
            (Destination::File, StreamMethod::Rwdev),
            (Destination::Usb, StreamMethod::Fileio),
            (Destination::Usb, StreamMethod::DmaBuf),
            (Destination::Usb, StreamMethod::Udmabuf),
            (Destination::Usb, StreamMethod::Rwdev),
        ]
        .into_iter()
        .filter(|(_, method)| peer || *method != StreamMethod::Rwdev)
        .collect();
        let row = |block: u64| methods.iter().map(move |&(to, method)| Self { method, to, block });
        blocks.iter().flat_map(|block| row(*block)).collect()
    }

    pub(crate) fn name(self) -> String {
        let to = match self.to {
            Destination::Nothing => "nothing",
            Destination::File => "a file",
            Destination::Usb => "USB",
        };
        format!("{} into {to}", self.method.name())
    }
}

/// The requested rows.
pub(crate) fn selected(args: &StreamArgs) -> Result<Vec<StreamRow>, Failure> {
    let all = StreamRow::all(&args.blocks, args.peer_iio_rwdev.is_some());
    select(all, &args.only, |row| row.name(), "no row has that name")
}

impl StreamMethod {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Fileio => "read()",
            Self::FileioDirect => "read(), O_DIRECT",
            Self::DmaBuf => "dma-buf",
            Self::Udmabuf => "udmabuf",
            Self::Rwdev => "iio_rwdev",
        }
    }
}

/// The common parts of all runs.
pub(crate) struct StreamBench<'a> {
    pub(crate) args: &'a StreamArgs,
    pub(crate) clock: &'a Clock,
    pub(crate) adc: &'a Adc,
    pub(crate) usb: Result<&'a Usb, &'a Trouble>,
}

/// Removes a file.
struct RemovedFile(PathBuf);

impl Drop for RemovedFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// The cost of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamCosts {
    pub(super) wall_ms: f64,
    pub(super) cpu_ms: f64,
    /// All work that the clock counts.
    pub(super) busy: f64,
}

/// Counts from the first sample on.
#[derive(Clone, Copy)]
struct StreamMeter<'a> {
    clock: &'a Clock,
    busy: Mark,
    start: Start,
}

impl<'a> StreamMeter<'a> {
    fn begin(clock: &'a Clock) -> Self {
        let meter = Self { clock, busy: clock.mark(), start: Start::now() };
        phase::open(Phase::Io);
        meter
    }

    fn end(self) -> StreamCosts {
        phase::close();
        let (busy, took) = (self.clock.busy_since(self.busy), self.start.took());
        // What is still going on was for this, but nobody waits for it.
        let late = self.clock.settle();
        StreamCosts { wall_ms: took.wall_ms, cpu_ms: took.cpu_ms(), busy: busy + late }
    }
}

impl StreamBench<'_> {
    /// Makes a run, and compares the samples if requested.
    pub(crate) fn run(&self, row: StreamRow, compare: bool) -> Result<StreamSample, Trouble> {
        let file = self.args.common.dir.join(format!(".dmabuf-dio-bench-{}", std::process::id()));
        let _remove = RemovedFile(file.clone());
        self.adc.set_sparse(!compare);
        Usb::set_sparse(!compare);
        let before = Usb::wrong_frames();
        // To compare them it is enough that every block has gone round.
        let most = if compare { 3 * self.count(row) * row.block } else { self.args.total };
        let total = most.min(self.args.total).max(row.block) / row.block * row.block;
        self.clock.settle();
        let spent = match row.method {
            StreamMethod::DmaBuf | StreamMethod::Udmabuf => self.by_dmabufs(row, &file, total)?,
            StreamMethod::Fileio => self.by_read(row, &file, total, OFlags::empty())?,
            StreamMethod::FileioDirect => self.by_read(row, &file, total, OFlags::DIRECT)?,
            StreamMethod::Rwdev if compare => self.peer(row, &file, total)?,
            StreamMethod::Rwdev => self.by_peer(row, &file, total)?,
        };
        if compare {
            check(row.to, &file, total, before)?;
        }
        let mib = total as f64 / f64::from(1 << 20);
        Ok(StreamSample {
            mib_per_s: mib / spent.wall_ms * 1e3,
            cpu_percent: spent.cpu_ms / spent.wall_ms * 100.0,
            per_mib: spent.busy / mib,
        })
    }

    /// Blocks of a ring.
    fn count(&self, row: StreamRow) -> u64 {
        (self.args.ring / row.block).clamp(COUNT, MOST)
    }

    fn ring(&self, row: StreamRow) -> Result<BlockRing, Trouble> {
        let count = self.count(row);
        if row.method == StreamMethod::DmaBuf {
            return BlockRing::new(count as usize, row.block).map_err(trouble);
        }
        let maker = Maker::new(BufferKind::Udmabuf)?;
        let block = |_| {
            let fd = maker.make(row.block)?.into_dmabuf();
            Buffer::from_fd(fd).map_err(|error| trouble(error.into()))
        };
        let blocks = (0..count).map(block).collect::<Result<_, _>>()?;
        BlockRing::of(blocks, row.block).map_err(trouble)
    }

    pub(super) fn usb(&self) -> Result<PathBuf, Trouble> {
        self.usb.map(Usb::endpoint).map_err(Clone::clone)
    }

    fn by_read(
        &self,
        row: StreamRow,
        file: &Path,
        total: u64,
        flags: OFlags,
    ) -> Result<StreamCosts, Trouble> {
        let writer = match row.to {
            Destination::Nothing => SinkWriter::Nothing,
            Destination::File => {
                SinkWriter::To(open(file, OFlags::CREATE | OFlags::TRUNC | flags)?)
            }
            Destination::Usb => SinkWriter::To(open(&self.usb()?, flags)?),
        };
        let mut reader = DeviceReader::start(self.adc, row.block)?;
        let meter = StreamMeter::begin(self.clock);
        for _ in 0..total / row.block {
            reader.pass_on(row.block, |bytes| writer.write(bytes))?;
        }
        writer.finish()?;
        Ok(meter.end())
    }

    fn by_dmabufs(&self, row: StreamRow, file: &Path, total: u64) -> Result<StreamCosts, Trouble> {
        let device = self.adc.device.clone();
        let mut source = IioSource::open(device, 0, &self.adc.channels).map_err(trouble)?;
        let mut sink: Box<dyn Sink> = match row.to {
            Destination::Nothing => Box::new(Discard::default()),
            Destination::File => Box::new(FileSink::create(file).map_err(trouble)?),
            Destination::Usb => Box::new(UsbSink::open(self.usb()?).map_err(trouble)?),
        };
        let ring = self.ring(row)?;
        let mut meter = None;
        let begin = |_| {
            // The first call comes before the first sample.
            meter.get_or_insert_with(|| StreamMeter::begin(self.clock));
        };
        let result = Stream::new(&mut source, &mut *sink, ring).limit(total).progress(begin).run();
        let spent = meter.map(StreamMeter::end);
        let summary = result.map_err(|interrupted| trouble(interrupted.error))?;
        match spent {
            Some(spent) if summary.bytes == total && summary.gaps.is_empty() => Ok(spent),
            _ => Err(Trouble::short("the stream", summary.bytes, total)),
        }
    }
}

#[allow(clippy::needless_pass_by_value)] // for map_err()
fn trouble(error: Error) -> Trouble {
    let errno = error.errno();
    Trouble { status: Status::Failed, reason: error.to_string(), errno }
}

fn check(to: Destination, file: &Path, total: u64, before: Option<u64>) -> Result<(), Trouble> {
    let different = |reason: String| Err(Trouble::new(Status::Different, reason));
    match to {
        Destination::Nothing => Ok(()),
        Destination::File => {
            let failed = |error: std::io::Error| Trouble::failed("reading the file", os(&error));
            let fd = fs::File::open(file).map_err(failed)?;
            match first_wrong_frame(fd.as_fd(), total).map_err(failed)? {
                Some(frame) => different(format!("frame {frame} is another")),
                None => Ok(()),
            }
        }
        Destination::Usb => match (before, Usb::wrong_frames()) {
            (Some(before), Some(after)) if after > before => {
                different(format!("the host found {} wrong frames", after - before))
            }
            _ => Ok(()),
        },
    }
}
