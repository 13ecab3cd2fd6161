// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ways into the file, and a run.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use dmabuf_dio_terminal::exit::{Failure, USAGE};
use rustix::process::Signal;

use super::busy::Hogs;
use super::numbers::Numbers;
use crate::disk::TemporaryPath;
use crate::measure::outcome::{Status, Trouble, io_failed, stream_errno};
use crate::process::Process;
use crate::report::row::Run;
use crate::stream::device::Adc;
use crate::stream::fileio::DeviceReader;

/// Blocks of `read()`: a part of a second, and the most that the kernel allocates in one piece.
const PART: f64 = 8.0;
const LARGEST: u64 = 4 << 20;
/// Blocks are whole frames, and what a device's DMA can want.
const LEAST_FRAMES: u64 = 64;
/// How much longer than the samples a program may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Dma-bufs of the row before are let go of in the background.
const REST: Duration = Duration::from_millis(200);

/// What else the machine does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    Idle,
    /// A thread for each CPU that never waits.
    Busy,
}

impl Load {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Busy => "busy",
        }
    }
}

/// How the samples get into the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RateWay {
    Ours,
    Read,
    Rwdev,
    /// With larger blocks than its own.
    RwdevBlocks,
}

impl RateWay {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ours => "dmabuf-dio",
            Self::Read => "read()",
            Self::Rwdev => "iio_rwdev",
            Self::RwdevBlocks => "iio_rwdev -b",
        }
    }
}

/// A cell of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RateRow {
    /// Frames per second.
    pub(crate) rate: f64,
    pub(crate) load: Load,
    pub(crate) way: RateWay,
}

impl RateRow {
    pub(crate) fn name(&self) -> String {
        format!("{}, {}, {} frames/s", self.load.name(), self.way.name(), self.rate)
    }
}

/// The common parts of all runs.
pub(super) struct RateBench<'a> {
    adc: &'a Adc,
    command: PathBuf,
    peer: Option<PathBuf>,
    seconds: u32,
    file: TemporaryPath,
}

impl<'a> RateBench<'a> {
    pub(super) fn new(
        adc: &'a Adc,
        command: Option<PathBuf>,
        peer: Option<PathBuf>,
        seconds: u32,
        file: TemporaryPath,
    ) -> Result<Self, Failure> {
        if adc.frame() != 8 {
            let what = format!("{} has frames of {} bytes", adc.name(), adc.frame());
            return Err(Failure::new(
                USAGE,
                what,
                "use kernel/sim/iio_stream, which counts frames",
            ));
        }
        let command = match command {
            Some(command) => command,
            None => std::env::current_exe()?.with_file_name("dmabuf-dio"),
        };
        adc.set_sparse(false);
        Ok(Self { adc, command, peer, seconds, file })
    }

    /// Bytes of a block of a way that does not choose it.
    pub(super) fn block(&self, row: RateRow) -> Option<u64> {
        let frames = match row.way {
            RateWay::Ours => return None,
            RateWay::Rwdev => 256,
            RateWay::Read | RateWay::RwdevBlocks => {
                let most = LARGEST / self.adc.frame();
                ((row.rate / PART) as u64).clamp(LEAST_FRAMES, most)
            }
        };
        Some(frames * self.adc.frame())
    }

    pub(super) fn run(&self, row: RateRow) -> Result<Run, Trouble> {
        let file = self.file.until_dropped();
        let file = file.path();
        let device = &self.adc.device;
        let set = device.set_rate(0, row.rate);
        set.map_err(|error| Trouble::failed("setting the rate", stream_errno(&error)))?;
        // What earlier rows have left to be written is not this one's.
        rustix::fs::sync();
        std::thread::sleep(REST);
        let hogs = (row.load == Load::Busy).then(Hogs::start);
        let made_per_s = match row.way {
            RateWay::Ours => self.ours(file)?,
            RateWay::Read => self.read(row, file)?,
            RateWay::Rwdev | RateWay::RwdevBlocks => self.rwdev(row, file)?,
        };
        drop(hogs);
        let device_lost = self.counter("lost_frames")?;
        let found = Numbers::of(file)?;
        if found.lost > device_lost {
            let what = format!("{} frames are missing, the device lost {device_lost}", found.lost);
            return Err(Trouble::new(Status::Different, what));
        }
        Ok(vec![
            ("frames", found.frames as f64),
            // Up to the last one in the file.
            ("lost", found.lost as f64),
            ("gaps", found.gaps as f64),
            // When it is stopped: those behind the last one in the file, too.
            ("device_lost", device_lost as f64),
            ("made_per_s", made_per_s),
        ])
    }

    fn seconds(&self) -> Duration {
        Duration::from_secs(self.seconds.into())
    }

    fn counter(&self, name: &str) -> Result<u64, Trouble> {
        let text = self.adc.device.read(name).ok();
        text.and_then(|text| text.parse().ok()).ok_or_else(|| {
            Trouble::new(Status::Unavailable, "the device does not count its frames")
        })
    }

    /// Frames that the device has made since its start, lost ones too.
    fn made(&self) -> Result<f64, Trouble> {
        Ok((self.counter("moved_frames")? + self.counter("lost_frames")?) as f64)
    }

    /// Returns how many frames per second the device made.
    fn ours(&self, file: &Path) -> Result<f64, Trouble> {
        let mut command = Command::new(&self.command);
        command.args(["capture", &self.adc.called, "--json", "--max-loss", "100%", "--force"]);
        command.args(["--seconds", &self.seconds.to_string(), "--to"]).arg(file);
        let output = Process::start("dmabuf-dio", command, Status::Failed)?.end(PATIENCE)?;
        let report: serde_json::Value = serde_json::from_str(&output)
            .map_err(|_| Trouble::new(Status::Failed, "dmabuf-dio capture gave no report"))?;
        // A device that is too slow itself does not make all frames in time: the figures say so.
        let error = report["error"].as_str().filter(|error| !error.starts_with("only "));
        if let Some(error) = error {
            return Err(Trouble::new(Status::Failed, format!("dmabuf-dio capture: {error}")));
        }
        let seconds = report["seconds"].as_f64().unwrap_or(f64::INFINITY);
        Ok(self.made()? / seconds)
    }

    fn read(&self, row: RateRow, path: &Path) -> Result<f64, Trouble> {
        let block = self.block(row).unwrap_or(LARGEST);
        let file = File::create(path).map_err(io_failed("making the file"))?;
        let mut reader = DeviceReader::start(self.adc, block)?;
        let begin = Instant::now();
        while begin.elapsed() < self.seconds() {
            reader.pass_on(block, |bytes| rustix::io::write(&file, bytes))?;
            Trouble::interrupted()?;
        }
        Ok(self.made()? / begin.elapsed().as_secs_f64())
    }

    fn rwdev(&self, row: RateRow, path: &Path) -> Result<f64, Trouble> {
        let Some(program) = &self.peer else {
            return Err(Trouble::new(Status::Unavailable, "no --peer-iio-rwdev PATH"));
        };
        let file = File::create(path).map_err(io_failed("making the file"))?;
        let mut command = Command::new(program);
        if let (RateWay::RwdevBlocks, Some(block)) = (row.way, self.block(row)) {
            command.args(["-b", &(block / self.adc.frame()).to_string()]);
        }
        command.arg(&self.adc.called);
        let mut running = Process::writing("iio_rwdev", command, file)?;
        // Its start is not part of it.
        let started = Instant::now();
        while fs::metadata(path).map_or(0, |file| file.len()) == 0 {
            running.goes_on()?;
            if started.elapsed() > PATIENCE {
                return Err(Trouble::new(Status::Failed, "iio_rwdev writes nothing"));
            }
        }
        let (begin, before) = (Instant::now(), self.made()?);
        while begin.elapsed() < self.seconds() {
            running.goes_on()?;
        }
        let made_per_s = (self.made()? - before) / begin.elapsed().as_secs_f64();
        running.signal(Signal::TERM);
        running.end(PATIENCE)?;
        Ok(made_per_s)
    }
}
