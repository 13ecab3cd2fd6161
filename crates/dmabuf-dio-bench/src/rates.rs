// SPDX-License-Identifier: MIT OR Apache-2.0
//! `rates`: frames that are lost at each rate, with this project and its defaults, `read()`, and libiio.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use clap::{Args, value_parser};
use dmabuf_dio_terminal::exit::{Failure, USAGE};
use dmabuf_dio_terminal::size::parse_rate;
use rustix::process::Signal;

use crate::args::{CommonArgs, EXIT_CODES};
use crate::disk::temporary_folder;
use crate::outcome::{Result, Status, Trouble, failed};
use crate::process::Process;
use crate::rows::{Case, Order, Report, Run};
use crate::stream::device::{Adc, DeviceReader, FRAME, Frames};

/// Frames lost on the way into a file, by rate, on an idle and on a busy machine
#[derive(Debug, Args)]
#[command(after_help = format!("\
The device has to write the number of each frame into it, as kernel/sim/iio_stream does: the numbers
that a file lacks are the frames that were lost. On the busy machine a thread for each CPU computes
without end. made_per_s are the frames that the device made: with fewer than due it was too slow itself.

Example: dmabuf-dio-bench rates --rates 100k,10M --seconds 1 --only dmabuf-dio --only 'read()'

{EXIT_CODES}"))]
pub(crate) struct RatesArgs {
    /// Frames per second
    #[arg(long, value_name = "RATE,...", value_delimiter = ',', value_parser = parse_rate,
          default_value = "1k,10k,100k,1M,10M,30M,62.5M")]
    pub(crate) rates: Vec<f64>,
    /// Seconds of a capture
    #[arg(long, value_name = "NUMBER", default_value_t = 2, value_parser = value_parser!(u32).range(1..=3600))]
    pub(crate) seconds: u32,
    /// `iio_rwdev` of libiio 1.0 or later, to compare with
    #[arg(long, value_name = "PATH")]
    pub(crate) peer_iio_rwdev: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// Blocks of `read()`: a part of a second, and the most that the kernel allocates in one piece.
const PART: f64 = 8.0;
const LARGEST: u64 = 4 << 20;
/// Blocks are whole frames, and what a device's DMA can want.
const LEAST_FRAMES: u64 = 64;
/// How much longer than the samples a program may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Dma-bufs of the row before are let go of in the background.
const REST: Duration = Duration::from_millis(200);

pub(crate) fn measure(args: &RatesArgs) -> Result<Report, Failure> {
    let mut report = Report::start("rates", &args.common)?;
    let adc = &Adc::find()?;
    if adc.frame() != FRAME {
        let what = format!("the device has frames of {} bytes", adc.frame());
        return Err(Failure::new(USAGE, what, "use kernel/sim/iio_stream, which counts frames"));
    }
    report.fact("frame", FRAME);
    report.fact("seconds", args.seconds);
    adc.set_sparse(false);
    let bench = &RateBench { args, adc };
    let mut cases = Vec::new();
    for load in ["idle", "busy"] {
        for &rate in &args.rates {
            for (name, way) in WAYS {
                if name.starts_with("iio_rwdev") && args.peer_iio_rwdev.is_none() {
                    continue;
                }
                let about =
                    vec![("load", load.into()), ("way", name.into()), ("rate", rate.into())];
                cases.push(Case::new(about, move |_| bench.run(load == "busy", rate, way)));
            }
        }
    }
    report.measure(cases, 1..=args.common.runs, Order::Turns)?;
    Ok(report)
}

/// The common parts of all runs.
struct RateBench<'a> {
    args: &'a RatesArgs,
    adc: &'a Adc,
}

/// Gets samples into the file, by blocks of so many frames. Returns how many frames per second the device made.
type Way = fn(&RateBench<'_>, &Path, u64) -> Result<f64>;

const WAYS: [(&str, Way); 4] = [
    ("dmabuf-dio", |bench, file, _| bench.ours(file)),
    ("read()", |bench, file, frames| bench.read(frames * FRAME, file)),
    ("iio_rwdev", |bench, file, _| bench.rwdev(None, file)),
    // With larger blocks than its own.
    ("iio_rwdev -b", |bench, file, frames| bench.rwdev(Some(frames), file)),
];

impl RateBench<'_> {
    fn run(&self, busy: bool, rate: f64, way: Way) -> Result<Run> {
        let folder = temporary_folder(&self.args.common.dir)?;
        let file = &folder.path().join("samples.bin");
        self.adc.device.set_rate(0, rate)?;
        // What earlier rows have left to be written is not this one's.
        rustix::fs::sync();
        std::thread::sleep(REST);
        let frames = ((rate / PART) as u64).clamp(LEAST_FRAMES, LARGEST / FRAME);
        let made_per_s = beside_hogs(busy, || way(self, file, frames))?;
        let device_lost = self.counter("lost_frames")?;
        let found = Frames::of(file)?;
        if found.lost > device_lost {
            let what = format!("{} frames are missing, the device lost {device_lost}", found.lost);
            return Err(Trouble::different(what));
        }
        Ok(vec![
            ("frames", found.count as f64),
            // Up to the last one in the file.
            ("lost", found.lost as f64),
            // When it is stopped: those behind the last one in the file, too.
            ("device_lost", device_lost as f64),
            ("made_per_s", made_per_s),
        ])
    }

    fn seconds(&self) -> Duration {
        Duration::from_secs(self.args.seconds.into())
    }

    fn counter(&self, name: &str) -> Result<u64> {
        let text = self.adc.device.read(name).ok();
        text.and_then(|text| text.parse().ok()).ok_or_else(|| {
            Trouble::new(Status::Unavailable, "the device does not count its frames")
        })
    }

    /// Frames that the device has made since its start, lost ones too.
    fn made(&self) -> Result<f64> {
        Ok((self.counter("moved_frames")? + self.counter("lost_frames")?) as f64)
    }

    fn ours(&self, file: &Path) -> Result<f64> {
        let program = std::env::current_exe().map_err(failed("finding this program"))?;
        let mut command = Command::new(program.with_file_name("dmabuf-dio"));
        command.args(["capture", Adc::NAME, "--json", "--max-loss", "100%", "--force"]);
        command.args(["--seconds", &self.args.seconds.to_string(), "--to"]).arg(file);
        let output = Process::start("dmabuf-dio", command, None, Status::Failed)?.end(PATIENCE)?.0;
        let report: serde_json::Value = serde_json::from_str(&output)
            .map_err(|_| Trouble::broken("dmabuf-dio capture gave no report"))?;
        // A device that is too slow itself does not make all frames in time: the figures say so.
        let error = report["error"].as_str().filter(|error| !error.starts_with("only "));
        if let Some(error) = error {
            return Err(Trouble::broken(format!("dmabuf-dio capture: {error}")));
        }
        let seconds = report["seconds"].as_f64().unwrap_or(f64::INFINITY);
        Ok(self.made()? / seconds)
    }

    fn read(&self, block: u64, path: &Path) -> Result<f64> {
        let mut file = File::create(path).map_err(failed("making the file"))?;
        let mut reader = DeviceReader::start(self.adc, block)?;
        let begin = Instant::now();
        while begin.elapsed() < self.seconds() {
            reader.pass_on(|bytes| file.write_all(bytes))?;
            Trouble::interrupted()?;
        }
        Ok(self.made()? / begin.elapsed().as_secs_f64())
    }

    fn rwdev(&self, frames: Option<u64>, path: &Path) -> Result<f64> {
        let file = File::create(path).map_err(failed("making the file"))?;
        let mut command =
            Command::new(self.args.peer_iio_rwdev.as_deref().unwrap_or("iio_rwdev".as_ref()));
        if let Some(frames) = frames {
            command.args(["-b", &frames.to_string()]);
        }
        command.arg(Adc::NAME);
        let mut running = Process::start("iio_rwdev", command, Some(file), Status::Failed)?;
        // Its start is not part of it.
        let started = Instant::now();
        while fs::metadata(path).map_or(0, |file| file.len()) == 0 {
            running.goes_on()?;
            if started.elapsed() > PATIENCE {
                return Err(Trouble::broken("iio_rwdev writes nothing"));
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

/// Does it while a thread for each CPU computes, if the machine is to be busy.
fn beside_hogs<T>(busy: bool, what: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(!busy);
    std::thread::scope(|scope| {
        for _ in 0..available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                let mut sum = 0_u64;
                while !stop.load(Ordering::Relaxed) {
                    sum = std::hint::black_box(sum.wrapping_mul(3) + 1);
                }
            });
        }
        let result = what();
        stop.store(true, Ordering::Relaxed);
        result
    })
}
