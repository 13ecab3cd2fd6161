// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rows, and a run of a row.

use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use dmabuf_dio::Buffer;
use dmabuf_dio_stream::{BlockRing, Discard, FileSink, IioSource, Sink, Stream, UsbSink};
use rustix::fs::OFlags;

use super::device::Adc;
use super::fileio::{DeviceReader, SinkWriter, first_wrong_frame, open};
use super::usb::Usb;
use crate::buffer::{BufferKind, Maker};
use crate::disk::TemporaryPath;
use crate::measure::clock::Clock;
use crate::measure::meter::{Span, Spent};
use crate::measure::outcome::{Status, Trouble, io_failed};
use crate::measure::phase::Phase;
use crate::report::row::Run;

/// Least blocks of a ring.
const COUNT: u64 = 4;
/// Most blocks: each takes up to three descriptors, of which a process usually has 1024.
const MOST: u64 = 256;

/// How the program receives samples and passes them on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamMethod {
    Fileio,
    /// The file is opened with `O_DIRECT`.
    FileioDirect,
    DmaBuf,
    /// dma-bufs over memfds, whose pages have 4 KiB.
    Udmabuf,
    /// libiio's program, with dma-bufs of its own.
    Rwdev,
}

/// The destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
        format!("{} into {}", self.method.name(), self.to.names().1)
    }
}

impl Destination {
    pub(crate) const ALL: [Self; 3] = [Self::Nothing, Self::File, Self::Usb];

    /// In results, and in sentences.
    pub(crate) fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Nothing => ("nothing", "nothing"),
            Self::File => ("file", "a file"),
            Self::Usb => ("usb", "USB"),
        }
    }
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
    /// Where the file is to be.
    pub(crate) file: TemporaryPath,
    /// Bytes of a ring of dma-bufs.
    pub(crate) ring: u64,
    /// Bytes of samples in a run.
    pub(crate) total: u64,
    pub(crate) peer: Option<&'a Path>,
    pub(crate) clock: &'a Clock,
    pub(crate) adc: &'a Adc,
    pub(crate) usb: Result<&'a Usb, &'a Trouble>,
}

impl StreamBench<'_> {
    /// Makes a run, and compares the samples if requested.
    pub(crate) fn run(&self, row: StreamRow, compare: bool) -> Result<Run, Trouble> {
        let file = self.file.until_dropped();
        self.adc.set_sparse(!compare);
        Usb::set_sparse(!compare);
        let before = Usb::wrong_frames();
        // To compare them it is enough that every block has gone round.
        let most = if compare { 3 * self.count(row) * row.block } else { self.total };
        let total = most.min(self.total).max(row.block) / row.block * row.block;
        self.clock.settle();
        let spent = match row.method {
            StreamMethod::DmaBuf | StreamMethod::Udmabuf => {
                self.by_dmabufs(row, file.path(), total)?
            }
            StreamMethod::Fileio => self.by_read(row, file.path(), total, OFlags::empty())?,
            StreamMethod::FileioDirect => self.by_read(row, file.path(), total, OFlags::DIRECT)?,
            StreamMethod::Rwdev if compare => self.run_peer(row, file.path(), total)?,
            StreamMethod::Rwdev => self.by_peer(row, file.path(), total)?,
        };
        if compare {
            check(row.to, file.path(), total, before)?;
        }
        let mib = total as f64 / f64::from(1 << 20);
        let took = spent.took;
        Ok(vec![
            ("mib_per_s", mib / took.wall_ms * 1e3),
            // Of one CPU.
            ("cpu_percent", took.cpu_ms() / took.wall_ms * 100.0),
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

    /// Blocks of a ring.
    fn count(&self, row: StreamRow) -> u64 {
        (self.ring / row.block).clamp(COUNT, MOST)
    }

    fn ring(&self, row: StreamRow) -> Result<BlockRing, Trouble> {
        let count = self.count(row);
        if row.method == StreamMethod::DmaBuf {
            return BlockRing::new(count as usize, row.block).map_err(Trouble::of_stream);
        }
        let maker = Maker::new(BufferKind::Udmabuf)?;
        let block = |_| {
            let fd = maker.make(row.block)?.into_dmabuf();
            Buffer::from_fd(fd).map_err(Trouble::of_library)
        };
        let blocks = (0..count).map(block).collect::<Result<_, _>>()?;
        BlockRing::of(blocks, row.block).map_err(Trouble::of_stream)
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
    ) -> Result<Spent, Trouble> {
        let writer = match row.to {
            Destination::Nothing => SinkWriter::Nothing,
            Destination::File => {
                SinkWriter::To(open(file, OFlags::CREATE | OFlags::TRUNC | flags)?)
            }
            Destination::Usb => SinkWriter::To(open(&self.usb()?, flags)?),
        };
        let mut reader = DeviceReader::start(self.adc, row.block)?;
        let meter = Span::begin(Some(self.clock), Phase::Io);
        for _ in 0..total / row.block {
            reader.pass_on(row.block, |bytes| writer.write(bytes))?;
        }
        writer.finish()?;
        Ok(self.ended(meter))
    }

    fn by_dmabufs(&self, row: StreamRow, file: &Path, total: u64) -> Result<Spent, Trouble> {
        let device = self.adc.device.clone();
        let mut source =
            IioSource::open(device, 0, &self.adc.channels).map_err(Trouble::of_stream)?;
        let mut sink: Box<dyn Sink> = match row.to {
            Destination::Nothing => Box::new(Discard::default()),
            Destination::File => Box::new(FileSink::create(file).map_err(Trouble::of_stream)?),
            Destination::Usb => Box::new(UsbSink::open(self.usb()?).map_err(Trouble::of_stream)?),
        };
        let ring = self.ring(row)?;
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

fn check(to: Destination, file: &Path, total: u64, before: Option<u64>) -> Result<(), Trouble> {
    let different = |reason: String| Err(Trouble::new(Status::Different, reason));
    match to {
        Destination::Nothing => Ok(()),
        Destination::File => {
            let failed = io_failed("reading the file");
            let fd = fs::File::open(file).map_err(&failed)?;
            match first_wrong_frame(fd.as_fd(), total).map_err(&failed)? {
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
