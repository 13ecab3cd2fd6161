// SPDX-License-Identifier: MIT OR Apache-2.0
//! `stream`: the comparison of the thread "iio: new DMABUF based API", samples by `read()` and by
//! dma-bufs.

pub(crate) mod device;

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use dmabuf_dio::Buffer;
use dmabuf_dio_stream::{BlockRing, Discard, FileSink, Function, IioSource, Sink, Stream, UsbSink};
use dmabuf_dio_terminal::exit::Failure;
use rustix::fs::OFlags;
use rustix::io::Errno as Os;
use serde_json::json;

use crate::args::{CommonArgs, EXIT_CODES, whole_pages};
use crate::buffer::{BufferKind, Maker};
use crate::disk::temporary_folder;
use crate::measure::clock::{Clock, Unit};
use crate::measure::phase::Phase;
use crate::measure::{Span, Spent, cpu_ms};
use crate::outcome::{Result, Status, Trouble, failed, whole};
use crate::rows::{Case, Order, Report, Run};
use device::{Adc, DeviceReader, FRAME, Frames, open_usb, set_sparse_host, wrong_frames};

/// Samples of an IIO device into nothing, a file and USB: `read()` compared with dma-bufs
#[derive(Debug, Args)]
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
/// Most runs of `total` bytes in one of `iio_rwdev`.
const MOST_TOTALS: u64 = 4096;

/// How the program receives samples and passes them on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Read,
    /// The file is opened with `O_DIRECT`.
    ReadDirect,
    DmaBuf,
    /// dma-bufs over memfds, whose pages have 4 KiB.
    Udmabuf,
    /// libiio's program, with dma-bufs of its own.
    Rwdev,
}

const METHODS: [(&str, Method); 5] = [
    ("read()", Method::Read),
    ("read(), O_DIRECT", Method::ReadDirect),
    ("dma-buf", Method::DmaBuf),
    ("udmabuf", Method::Udmabuf),
    ("iio_rwdev", Method::Rwdev),
];

/// The destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum To {
    Nothing,
    File,
    Usb,
}

const DESTINATIONS: [(&str, To); 3] =
    [("nothing", To::Nothing), ("file", To::File), ("usb", To::Usb)];

/// A row of the table.
#[derive(Clone, Copy)]
struct StreamRow<'a> {
    args: &'a StreamArgs,
    clock: &'a Clock,
    adc: &'a Adc,
    usb: Result<&'a Function, &'a Trouble>,
    method: Method,
    to: To,
    block: u64,
}

pub(crate) fn measure(args: &StreamArgs) -> Result<Report, Failure> {
    let mut report = Report::start("stream", &args.common)?;
    let adc = &Adc::find()?;
    let usb = &open_usb(args.usb.as_deref());
    let clock = &Clock::start()?;
    report.fact("total", args.total);
    report.fact("unit", json!(clock.unit));
    let mut cases = Vec::new();
    for &block in &args.blocks {
        for (destination, to) in DESTINATIONS {
            for (name, method) in METHODS {
                if (method == Method::Rwdev && args.peer_iio_rwdev.is_none())
                    || (method == Method::ReadDirect && to != To::File)
                {
                    continue;
                }
                let about =
                    vec![("to", destination.into()), ("way", name.into()), ("block", block.into())];
                let row = StreamRow { args, clock, adc, usb: usb.as_ref(), method, to, block };
                // In run 0 samples are compared.
                cases.push(Case::new(about, move |run| row.run(run == 0)));
            }
        }
    }
    report.measure(cases, 0..=args.common.runs, Order::Turns)?;
    Ok(report)
}

impl StreamRow<'_> {
    /// Makes a run, and compares the samples if requested.
    fn run(self, compare: bool) -> Result<Run> {
        let folder = temporary_folder(&self.args.common.dir)?;
        let file = &folder.path().join("samples");
        self.adc.set_sparse(!compare);
        set_sparse_host(!compare);
        let before = wrong_frames();
        // To compare them it is enough that every block has gone round.
        let most = if compare { 3 * self.count() * self.block } else { self.args.total };
        let total = most.min(self.args.total).max(self.block) / self.block * self.block;
        self.clock.settle();
        let spent = match self.method {
            Method::DmaBuf | Method::Udmabuf => self.by_dmabufs(file, total)?,
            Method::Read => self.by_read(file, total, OFlags::empty())?,
            Method::ReadDirect => self.by_read(file, total, OFlags::DIRECT)?,
            Method::Rwdev if compare => self.run_peer(file, total)?,
            Method::Rwdev => self.by_peer(file, total)?,
        };
        if compare {
            self.check(file, total, before)?;
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
    fn ended(self, meter: Span<'_>) -> Spent {
        let mut spent = meter.end();
        spent.busy += self.clock.settle();
        spent
    }

    /// Blocks of the ring.
    fn count(self) -> u64 {
        (RING / self.block).clamp(COUNT, MOST)
    }

    fn ring(self) -> Result<BlockRing> {
        if self.method == Method::DmaBuf {
            return Ok(BlockRing::new(self.count() as usize, self.block)?);
        }
        let maker = Maker::new(BufferKind::Udmabuf)?;
        let block = |_| Ok(Buffer::from_fd(maker.make(self.block)?.into_dmabuf())?);
        let blocks = (0..self.count()).map(block).collect::<Result<_>>()?;
        Ok(BlockRing::of(blocks, self.block)?)
    }

    fn endpoint(self) -> Result<PathBuf> {
        self.usb.map(Function::endpoint).map_err(Clone::clone)
    }

    /// Opens a file or an endpoint.
    fn open(self, file: &Path, flags: OFlags) -> Result<Option<File>> {
        let path = match self.to {
            To::Nothing => return Ok(None),
            To::File => file.to_owned(),
            To::Usb => self.endpoint()?,
        };
        let mut options = OpenOptions::new();
        options.write(true).create(self.to == To::File).truncate(self.to == To::File);
        let sink = options.custom_flags(flags.bits() as i32).open(path);
        sink.map(Some).map_err(failed("opening the sink"))
    }

    fn by_read(self, file: &Path, total: u64, flags: OFlags) -> Result<Spent> {
        let mut sink = self.open(file, flags)?;
        let mut reader = DeviceReader::start(self.adc, self.block)?;
        let meter = Span::begin(Some(self.clock), Phase::Io);
        for _ in 0..total / self.block {
            reader.pass_on(|bytes| sink.as_mut().map_or(Ok(()), |sink| sink.write_all(bytes)))?;
        }
        finish(sink.as_ref())?;
        Ok(self.ended(meter))
    }

    fn by_dmabufs(self, file: &Path, total: u64) -> Result<Spent> {
        let mut source = IioSource::open(self.adc.device.clone(), 0, &self.adc.channels)?;
        let mut sink: Box<dyn Sink> = match self.to {
            To::Nothing => Box::new(Discard::default()),
            To::File => Box::new(FileSink::create(file)?),
            To::Usb => Box::new(UsbSink::open(self.endpoint()?)?),
        };
        let ring = self.ring()?;
        let mut meter = None;
        let begin = |_| {
            // The first call comes before the first sample.
            meter.get_or_insert_with(|| Span::begin(Some(self.clock), Phase::Io));
        };
        let result = Stream::new(&mut source, &mut *sink, ring).limit(total).progress(begin).run();
        let spent = meter.map(|meter| self.ended(meter)).unwrap_or_default();
        let summary = result.map_err(|interrupted| interrupted.error)?;
        whole("the stream", summary.bytes, total)?;
        if !summary.gaps.is_empty() {
            let places = summary.gaps.len();
            return Err(Trouble::broken(format!("the stream lost frames at {places} places")));
        }
        Ok(spent)
    }

    /// The cost of `total` bytes, without that of starting the program: a run of a block more, less a run
    /// of one block. As starting costs more in some runs than in others, the samples have to cost as much as
    /// that, or there are four times as many.
    fn by_peer(self, file: &Path, total: u64) -> Result<Spent> {
        let start = self.run_peer(file, self.block)?;
        let mut totals = 1;
        while totals <= MOST_TOTALS {
            let all = self.run_peer(file, totals * total + self.block)?;
            let more = all.plus(start, -1.0);
            let twice = all.wall_ms >= 2.0 * start.wall_ms && all.busy >= 2.0 * start.busy;
            if twice && more.cpu_ms >= 0.0 {
                return Ok(Spent::default().plus(more, 1.0 / totals as f64));
            }
            totals *= 4;
        }
        let what = "starting it took longer than the samples: choose a larger --total";
        Err(Trouble::new(Status::Unavailable, what))
    }

    /// Runs it once, and writes to the same places as the other rows.
    fn run_peer(self, file: &Path, bytes: u64) -> Result<Spent> {
        let sink = self.open(file, OFlags::empty())?;
        let out = sink.as_ref().map(File::try_clone).transpose();
        let out = out.map_err(failed("duplicating a descriptor"))?;
        let [block, frames] = [self.block, bytes].map(|it| (it / self.adc.frame()).to_string());
        let mut command =
            Command::new(self.args.peer_iio_rwdev.as_deref().unwrap_or("iio_rwdev".as_ref()));
        command.args(["-b", &block, "-s", &frames, Adc::NAME]).stdin(Stdio::null());
        command.stdout(out.map_or_else(Stdio::null, Stdio::from)).stderr(Stdio::null());
        self.clock.settle();
        let children = cpu_ms(libc::RUSAGE_CHILDREN);
        let span = Span::begin(Some(self.clock), Phase::Io);
        let status = command.status().map_err(|error| {
            Trouble::new(Status::Unavailable, format!("iio_rwdev cannot be run: {error}"))
        })?;
        finish(sink.as_ref())?;
        let mut spent = self.ended(span);
        if !status.success() {
            return Err(Trouble::broken(format!("iio_rwdev ended with {status}")));
        }
        spent.cpu_ms += cpu_ms(libc::RUSAGE_CHILDREN) - children;
        // Where only this process is counted, the program is not in it.
        if self.clock.unit == Unit::Nanoseconds {
            spent.busy = spent.cpu_ms * 1e6;
        }
        Ok(spent)
    }
    fn check(self, file: &Path, total: u64, before: Option<u64>) -> Result<()> {
        let wrong = match self.to {
            To::Nothing => return Ok(()),
            To::File => match Frames::of(file)? {
                found if found.lost > 0 => format!("{} frames are missing", found.lost),
                found if found.count < total / FRAME => {
                    format!("the file has {} frames", found.count)
                }
                _ => return Ok(()),
            },
            To::Usb => match before.zip(wrong_frames()) {
                Some((before, after)) if after > before => {
                    format!("the host found {} wrong frames", after - before)
                }
                _ => return Ok(()),
            },
        };
        Err(Trouble::different(wrong))
    }
}

/// Waits until all of it is on the disk or at the host.
fn finish(sink: Option<&File>) -> Result<()> {
    match sink.map_or(Ok(()), rustix::fs::fsync) {
        // An endpoint has nothing to make durable.
        Ok(()) | Err(Os::INVAL) => Ok(()),
        Err(errno) => Err(Trouble::failed("fsync()", errno)),
    }
}
