// SPDX-License-Identifier: MIT OR Apache-2.0
//! `stream`: the comparison of the thread "iio: new DMABUF based API", samples by `read()` and by
//! dma-bufs.

pub(crate) mod device;
mod peer;
mod usb;

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use clap::Args;
use dmabuf_dio::Buffer;
use dmabuf_dio_stream::{BlockRing, Discard, FileSink, IioSource, Sink, Stream, UsbSink};
use dmabuf_dio_terminal::exit::Failure;
use rustix::fs::OFlags;
use rustix::io::Errno as Os;
use serde::Serialize;
use serde_json::json;

use crate::args::{CommonArgs, EXIT_CODES, whole_pages};
use crate::buffer::{BufferKind, Maker};
use crate::disk::TemporaryPath;
use crate::host::facts::facts;
use crate::measure::clock::Clock;
use crate::measure::meter::{Span, Spent};
use crate::measure::phase::Phase;
use crate::outcome::{Status, Trouble, failed};
use crate::rows::{Case, Order, Report, Run, measure as run_all};
use device::{Adc, DeviceReader, FRAME, Frames};
use usb::Usb;

/// Arguments of `stream`.
#[derive(Debug, Args)]
#[command(
    about = "Samples of an IIO device into nothing, a file and USB: read() compared with dma-bufs"
)]
#[command(after_help = format!("\
The device is that of kernel/sim/iio_stream, which gives samples as fast as blocks come. Before it is
measured, each row is run once with every sample compared; what goes to USB is compared by the host of
kernel/sim/usb_sink. Under vm/run --icount the cost is in instructions, and speed means nothing.

Example: vm/run --kernel 7.3-series -- tests/with-usb-gadget dmabuf-dio-bench stream --usb /run/ffs

{EXIT_CODES}"))]
pub(crate) struct StreamArgs {
    /// Sizes of a block, multiples of the page size
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = whole_pages,
          default_value = "16K,1M,64M")]
    pub(crate) blocks: Vec<u64>,
    /// Bytes of samples in a run
    #[arg(long, value_name = "SIZE", value_parser = whole_pages, default_value = "512M")]
    pub(crate) total: u64,
    /// Mount point of a functionfs instance, for the USB rows
    #[arg(long, value_name = "FOLDER")]
    pub(crate) usb: Option<PathBuf>,
    /// `iio_rwdev` of libiio 1.0 or later, for rows to compare with
    #[arg(long, value_name = "PATH")]
    pub(crate) peer_iio_rwdev: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// Bytes of a ring of dma-bufs, its least blocks, and its most: each takes up to three descriptors, of which a process
/// usually has 1024.
const RING: u64 = 64 << 20;
const COUNT: u64 = 4;
const MOST: u64 = 256;

/// How the program receives samples and passes them on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum Method {
    #[serde(rename = "read()")]
    Read,
    /// The file is opened with `O_DIRECT`.
    #[serde(rename = "read(), O_DIRECT")]
    ReadDirect,
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
enum To {
    Nothing,
    File,
    Usb,
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
struct StreamRow {
    method: Method,
    to: To,
    block: u64,
}

pub(crate) fn measure(args: &StreamArgs) -> Result<Report, Failure> {
    let mut facts = facts(&args.common)?;
    let adc = Adc::find()?;
    let usb = Usb::open(args.usb.as_deref());
    let clock = Clock::start()?;
    facts.extend([("total", args.total.into()), ("unit", json!(clock.unit()))]);
    let bench = StreamBench { args, clock: &clock, adc: &adc, usb: usb.as_ref() };
    let mut cases = Vec::new();
    for &block in &args.blocks {
        for to in [To::Nothing, To::File, To::Usb] {
            use Method::{DmaBuf, Read, ReadDirect, Rwdev, Udmabuf};
            for method in [Read, ReadDirect, DmaBuf, Udmabuf, Rwdev] {
                let without = (method == Rwdev && args.peer_iio_rwdev.is_none())
                    || (method == ReadDirect && to != To::File);
                if !without {
                    let about =
                        vec![("to", json!(to)), ("way", json!(method)), ("block", block.into())];
                    let (bench, row) = (&bench, StreamRow { method, to, block });
                    // In run 0 samples are compared.
                    cases.push(Case::new(about, move |run| bench.run(row, run == 0)));
                }
            }
        }
    }
    let rows = run_all(cases, &args.common.only, 0..=args.common.runs, Order::Turns)?;
    Ok(Report { bench: "stream", facts, rows })
}

/// The common parts of all runs.
struct StreamBench<'a> {
    args: &'a StreamArgs,
    clock: &'a Clock,
    adc: &'a Adc,
    usb: Result<&'a Usb, &'a Trouble>,
}

impl StreamBench<'_> {
    /// Makes a run, and compares the samples if requested.
    fn run(&self, row: StreamRow, compare: bool) -> Result<Run, Trouble> {
        let file = TemporaryPath::new(&self.args.common.dir, ".bin");
        let file = file.path();
        self.adc.set_sparse(!compare);
        Usb::set_sparse(!compare);
        let before = Usb::wrong_frames();
        // To compare them it is enough that every block has gone round.
        let most = if compare { 3 * count(row.block) * row.block } else { self.args.total };
        let total = most.min(self.args.total).max(row.block) / row.block * row.block;
        self.clock.settle();
        let spent = match row.method {
            Method::DmaBuf | Method::Udmabuf => self.by_dmabufs(row, file, total)?,
            Method::Read => self.by_read(row, file, total, OFlags::empty())?,
            Method::ReadDirect => self.by_read(row, file, total, OFlags::DIRECT)?,
            Method::Rwdev if compare => self.run_peer(row, file, total)?,
            Method::Rwdev => self.by_peer(row, file, total)?,
        };
        if compare {
            check(row.to, file, total, before)?;
        }
        let mib = total as f64 / f64::from(1 << 20);
        Ok(vec![
            ("mib_per_s", mib / spent.wall_ms * 1e3),
            // Of one CPU.
            ("cpu_percent", spent.cpu_ms / spent.wall_ms * 100.0),
            // The clock's count.
            ("per_mib", spent.busy / mib),
        ])
    }

    /// What is still going on was for this, but nobody waits for it.
    fn ended(&self, meter: Span<'_>) -> Spent {
        let mut spent = meter.end();
        spent.busy += self.clock.settle();
        spent
    }

    fn ring(row: StreamRow) -> Result<BlockRing, Trouble> {
        let count = count(row.block);
        if row.method == Method::DmaBuf {
            return BlockRing::new(count as usize, row.block).map_err(Trouble::of_stream);
        }
        let maker = Maker::new(BufferKind::Udmabuf)?;
        let block = |_| {
            let fd = maker.make(row.block)?.into_dmabuf();
            let fd = fd.ok_or_else(|| Trouble::new(Status::Failed, "no dma-buf"))?;
            Buffer::from_fd(fd).map_err(Trouble::of_library)
        };
        let blocks = (0..count).map(block).collect::<Result<_, _>>()?;
        BlockRing::of(blocks, row.block).map_err(Trouble::of_stream)
    }

    fn endpoint(&self) -> Result<PathBuf, Trouble> {
        self.usb.map(Usb::endpoint).map_err(Clone::clone)
    }

    /// Opens a file or an endpoint.
    fn open(&self, to: To, file: &Path, flags: OFlags) -> Result<Option<File>, Trouble> {
        let path = match to {
            To::Nothing => return Ok(None),
            To::File => file.to_owned(),
            To::Usb => self.endpoint()?,
        };
        let mut options = OpenOptions::new();
        options.write(true).create(to == To::File).truncate(to == To::File);
        let sink = options.custom_flags(flags.bits() as i32).open(path);
        sink.map(Some).map_err(failed("opening the sink"))
    }

    fn by_read(
        &self,
        row: StreamRow,
        file: &Path,
        total: u64,
        flags: OFlags,
    ) -> Result<Spent, Trouble> {
        let mut sink = self.open(row.to, file, flags)?;
        let mut reader = DeviceReader::start(self.adc, row.block)?;
        let meter = Span::begin(Some(self.clock), Phase::Io);
        for _ in 0..total / row.block {
            reader.pass_on(|bytes| sink.as_mut().map_or(Ok(()), |sink| sink.write_all(bytes)))?;
        }
        finish(sink.as_ref())?;
        Ok(self.ended(meter))
    }

    fn by_dmabufs(&self, row: StreamRow, file: &Path, total: u64) -> Result<Spent, Trouble> {
        let device = self.adc.device.clone();
        let mut source =
            IioSource::open(device, 0, &self.adc.channels).map_err(Trouble::of_stream)?;
        let mut sink: Box<dyn Sink> = match row.to {
            To::Nothing => Box::new(Discard::default()),
            To::File => Box::new(FileSink::create(file).map_err(Trouble::of_stream)?),
            To::Usb => Box::new(UsbSink::open(self.endpoint()?).map_err(Trouble::of_stream)?),
        };
        let ring = Self::ring(row)?;
        let mut meter = None;
        let begin = |_| {
            // The first call comes before the first sample.
            meter.get_or_insert_with(|| Span::begin(Some(self.clock), Phase::Io));
        };
        let result = Stream::new(&mut source, &mut *sink, ring).limit(total).progress(begin).run();
        let spent = meter.map(|meter| self.ended(meter));
        let summary = result.map_err(|interrupted| Trouble::of_stream(interrupted.error))?;
        match spent {
            Some(spent) if summary.bytes == total && summary.gaps.is_empty() => Ok(spent),
            _ => Err(Trouble::short("the stream", summary.bytes, total)),
        }
    }
}

/// Blocks of a ring.
fn count(block: u64) -> u64 {
    (RING / block).clamp(COUNT, MOST)
}

fn check(to: To, file: &Path, total: u64, before: Option<u64>) -> Result<(), Trouble> {
    let wrong = match to {
        To::Nothing => None,
        To::File => match Frames::of(file)? {
            found if found.lost > 0 => Some(format!("{} frames are missing", found.lost)),
            found if found.count < total / FRAME => {
                Some(format!("the file has {} frames", found.count))
            }
            _ => None,
        },
        To::Usb => match before.zip(Usb::wrong_frames()) {
            Some((before, after)) if after > before => {
                Some(format!("the host found {} wrong frames", after - before))
            }
            _ => None,
        },
    };
    wrong.map_or(Ok(()), |wrong| Err(Trouble::different(wrong)))
}

/// Waits until all of it is on the disk or at the host.
fn finish(sink: Option<&File>) -> Result<(), Trouble> {
    match sink.map_or(Ok(()), rustix::fs::fsync) {
        // An endpoint has nothing to make durable.
        Ok(()) | Err(Os::INVAL) => Ok(()),
        Err(errno) => Err(Trouble::failed("fsync()", errno)),
    }
}
