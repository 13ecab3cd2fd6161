// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ways into the file, and a run.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use dmabuf_dio_cli::exit::{Failure, USAGE};
use dmabuf_dio_cli::signals;
use rustix::process::{Pid, Signal, kill_process};

use super::args::RatesArgs;
use super::busy::Hogs;
use super::numbers::Numbers;
use super::results::RateSample;
use super::rows::{Load, RateRow, RateWay};
use crate::measure::outcome::{Status, Trouble, io_failed, stream_errno};
use crate::stream::device::Adc;
use crate::stream::fileio::DeviceReader;

/// Blocks of `read()`: a part of a second, and the most that the kernel allocates in one piece.
const PART: f64 = 8.0;
const LARGEST: u64 = 4 << 20;
/// Blocks are whole frames, and what a device's DMA can want.
const LEAST_FRAMES: u64 = 64;
/// How much longer than the samples a program may take.
const PATIENCE: Duration = Duration::from_secs(30);
const TICK: Duration = Duration::from_millis(5);
/// Dma-bufs of the row before are let go of in the background.
const REST: Duration = Duration::from_millis(200);

/// The common parts of all runs.
pub(super) struct RateBench<'a> {
    args: &'a RatesArgs,
    adc: &'a Adc,
    command: PathBuf,
    file: PathBuf,
}

impl<'a> RateBench<'a> {
    pub(super) fn new(args: &'a RatesArgs, adc: &'a Adc) -> Result<Self, Failure> {
        if adc.frame() != 8 {
            let what = format!("{} has frames of {} bytes", adc.name(), adc.frame());
            return Err(Failure::new(
                USAGE,
                what,
                "use kernel/sim/iio_stream, which counts frames",
            ));
        }
        let command = match &args.command {
            Some(command) => command.clone(),
            None => std::env::current_exe()?.with_file_name("dmabuf-dio"),
        };
        let file = args.common.dir.join(format!(".dmabuf-dio-bench-{}.bin", std::process::id()));
        adc.set_sparse(false);
        Ok(Self { args, adc, command, file })
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

    pub(super) fn run(&self, row: RateRow) -> Result<RateSample, Trouble> {
        let _removed = Removed(self.file.clone());
        let device = &self.adc.device;
        let set = device.set_rate(0, row.rate);
        set.map_err(|error| Trouble::failed("setting the rate", stream_errno(&error)))?;
        // What earlier rows have left to be written is not this one's.
        rustix::fs::sync();
        std::thread::sleep(REST);
        let hogs = (row.load == Load::Busy).then(Hogs::start);
        let made_per_s = match row.way {
            RateWay::Ours => self.ours()?,
            RateWay::Read => self.read(row)?,
            RateWay::Rwdev | RateWay::RwdevBlocks => self.rwdev(row)?,
        };
        drop(hogs);
        let device_lost = self.counter("lost_frames")?;
        let found = Numbers::of(&self.file)?;
        if found.lost > device_lost {
            let what = format!("{} frames are missing, the device lost {device_lost}", found.lost);
            return Err(Trouble::new(Status::Different, what));
        }
        Ok(RateSample {
            frames: found.frames,
            lost: found.lost,
            gaps: found.gaps,
            device_lost,
            made_per_s,
        })
    }

    fn seconds(&self) -> Duration {
        Duration::from_secs(self.args.seconds.into())
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
    fn ours(&self) -> Result<f64, Trouble> {
        let mut command = Command::new(&self.command);
        command.args(["capture", &self.args.device, "--json", "--max-loss", "100%", "--force"]);
        command.args(["--seconds", &self.args.seconds.to_string(), "--to"]).arg(&self.file);
        let output = Running::start("dmabuf-dio", command.stdout(Stdio::piped()))?.end()?;
        let report: serde_json::Value = serde_json::from_slice(&output)
            .map_err(|_| Trouble::new(Status::Failed, "dmabuf-dio capture gave no report"))?;
        // A device that is too slow itself does not make all frames in time: the figures say so.
        let error = report["error"].as_str().filter(|error| !error.starts_with("only "));
        if let Some(error) = error {
            return Err(Trouble::new(Status::Failed, format!("dmabuf-dio capture: {error}")));
        }
        let seconds = report["seconds"].as_f64().unwrap_or(f64::INFINITY);
        Ok(self.made()? / seconds)
    }

    fn read(&self, row: RateRow) -> Result<f64, Trouble> {
        let block = self.block(row).unwrap_or(LARGEST);
        let file = File::create(&self.file).map_err(io_failed("making the file"))?;
        let mut reader = DeviceReader::start(self.adc, block)?;
        let begin = Instant::now();
        while begin.elapsed() < self.seconds() {
            reader.pass_on(block, |bytes| rustix::io::write(&file, bytes))?;
            interrupted()?;
        }
        Ok(self.made()? / begin.elapsed().as_secs_f64())
    }

    fn rwdev(&self, row: RateRow) -> Result<f64, Trouble> {
        let Some(program) = &self.args.peer_iio_rwdev else {
            return Err(Trouble::new(Status::Unavailable, "no --peer-iio-rwdev PATH"));
        };
        let file = File::create(&self.file).map_err(io_failed("making the file"))?;
        let mut command = Command::new(program);
        if let (RateWay::RwdevBlocks, Some(block)) = (row.way, self.block(row)) {
            command.args(["-b", &(block / self.adc.frame()).to_string()]);
        }
        let mut running = Running::start("iio_rwdev", command.arg(&self.args.device).stdout(file))?;
        // Its start is not part of it.
        let started = Instant::now();
        while fs::metadata(&self.file).map_or(0, |file| file.len()) == 0 {
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
        running.end()?;
        Ok(made_per_s)
    }
}

/// Removes a file, and its description.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
        let _ = fs::remove_file(self.0.with_extension("sigmf-meta"));
    }
}

/// A program, which is killed when this is dropped.
struct Running {
    name: &'static str,
    child: Child,
}

impl Running {
    fn start(name: &'static str, command: &mut Command) -> Result<Self, Trouble> {
        let child =
            command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().map_err(|error| {
                Trouble::new(Status::Unavailable, format!("{name} cannot be run: {error}"))
            })?;
        Ok(Self { name, child })
    }

    /// Waits for an instant. Fails if it has ended.
    fn goes_on(&mut self) -> Result<(), Trouble> {
        std::thread::sleep(TICK);
        interrupted()?;
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => {
                let what = format!("{} ended early: {status}", self.name);
                Err(Trouble::new(Status::Failed, what))
            }
            Err(error) => Err(io_failed("waitpid")(error)),
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.child.id() as i32) {
            let _ = kill_process(pid, signal);
        }
    }

    /// Waits for its end. Returns what it printed.
    fn end(mut self) -> Result<Vec<u8>, Trouble> {
        let mut printed = Vec::new();
        if let Some(mut stdout) = self.child.stdout.take() {
            std::io::Read::read_to_end(&mut stdout, &mut printed)
                .map_err(io_failed("reading its report"))?;
        }
        let begin = Instant::now();
        loop {
            match self.child.try_wait() {
                Ok(Some(_)) => return Ok(printed),
                Ok(None) if begin.elapsed() < PATIENCE => std::thread::sleep(TICK),
                Ok(None) => {
                    let what = format!("{} does not end", self.name);
                    return Err(Trouble::new(Status::Failed, what));
                }
                Err(error) => return Err(io_failed("waitpid")(error)),
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn interrupted() -> Result<(), Trouble> {
    match signals::caught() {
        None => Ok(()),
        Some(_) => Err(Trouble::new(Status::Failed, "interrupted")),
    }
}
