// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is on a disk after the power was cut. A round makes a file system on a disk whose writes are
//! logged (dm-log-writes), saves, writes and captures to it, and then replays the log: at each point
//! the file system is mounted on what the disk would have, and every byte of every file compared.
//!
//! A seed repeats the operations, not how the file system and its threads write them.

mod args;
mod log;
mod model;
mod replay;
mod volume;
mod workload;

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use args::Args;
use log::Log;
use model::State;
use replay::{Replay, Tally};
use workload::Work;

use crate::mapper::{Mapped, SECTOR, Target};
use crate::random::Random;

/// Of a round.
const OPERATIONS: u64 = 25;

/// The disks of a campaign; several run at the same time.
struct Place {
    number: usize,
    /// A RAM disk that is used and logged.
    used: PathBuf,
    log: PathBuf,
    /// A RAM disk that the log is replayed on.
    disk: PathBuf,
    /// Another one, which has what mounts write there.
    aside: PathBuf,
    /// Where file systems are mounted.
    at: PathBuf,
}

impl Place {
    fn prepare(number: usize) -> Result<Self, String> {
        let logs = std::env::var("DMABUF_DIO_RAW_DISKS").unwrap_or_default();
        let log = logs.split_whitespace().nth(number);
        let log = log.ok_or("there are too few raw disks (vm/run --raw-disks)")?.into();
        let ram = |part| PathBuf::from(format!("/dev/ram{}", 3 * number + part));
        if !ram(2).exists() {
            return Err("there are too few RAM disks (modprobe brd rd_nr=12 rd_size=524288)".into());
        }
        for module in ["dm_log_writes", "dm_snapshot"] {
            let _ = Command::new("modprobe").args(["-q", module]).status();
        }
        let at = std::env::temp_dir().join(format!("powercut-{number}"));
        std::fs::create_dir_all(&at).map_err(|error| format!("{}: {error}", at.display()))?;
        Ok(Self { number, used: ram(0), log, disk: ram(1), aside: ram(2), at })
    }
}

/// Makes the beginning of a disk zero.
fn zero(path: &Path, length: u64) -> Result<(), String> {
    const DISCARD: u64 = 0x1277;
    const ZERO: u64 = 0x127f;
    let failed = |error| format!("{}: {error}", path.display());
    let disk = File::options().write(true).open(path).map_err(failed)?;
    let range = [0, length];
    // SAFETY: BLKDISCARD and BLKZEROOUT read two numbers.
    let call = |number| unsafe { libc::ioctl(disk.as_raw_fd(), number, range.as_ptr()) };
    // What a RAM disk discards is zero, and its memory is free.
    if call(DISCARD) < 0 && call(ZERO) < 0 {
        return Err(failed(std::io::Error::last_os_error()));
    }
    Ok(())
}

/// Runs operations on a disk that is logged. Returns what may be found after each mark.
fn work(place: &Place, args: &Args, random: Random) -> Result<Vec<State>, String> {
    let (length, number) = (args.kind.size / SECTOR, place.number);
    let device = Mapped::create(&format!("dio-powercut-{number}"))?;
    let arguments = format!("{} {}", place.used.display(), place.log.display());
    device.load(&[Target { start: 0, length, kind: "log-writes", arguments }])?;
    args.kind.make(&device.path)?;
    let mounted = args.kind.mount(&device.path, &place.at)?;
    let mut work = Work::start(args.kind, &place.at, &device, random)?;
    for _ in 0..OPERATIONS {
        work.step()?;
    }
    work.check().map_err(|why| format!("before any cut: {why}"))?;
    let states = std::mem::take(&mut work.states);
    mounted.unmount()?;
    // dm-log-writes logs what was not flushed when it ends, and before what it has not logged yet.
    let disk = File::open(&device.path).and_then(|disk| disk.sync_all());
    disk.map_err(|error| format!("{}: {error}", device.path.display()))?;
    Ok(states)
}

fn round(
    place: &Place,
    args: &Args,
    number: u64,
    tally: &mut Tally,
    enough: &dyn Fn(u64) -> bool,
) -> Result<(), String> {
    zero(&place.used, args.kind.size)?;
    zero(&place.disk, args.kind.size)?;
    let states = work(place, args, Random::of_round(args.seed, number))?;
    let log = Log::read(&place.log)?;
    log.compare(&place.used)?;
    let disk = File::options().read(true).write(true).open(&place.disk);
    let disk = disk.map_err(|error| format!("{}: {error}", place.disk.display()))?;
    if args.verbose {
        let (entries, states) = (log.entries.len(), states.len());
        let (name, points) = (args.kind.name, tally.points);
        println!("{name} round {number} points={points} entries={entries} marks={states}");
    }
    let mut replay = Replay {
        kind: args.kind,
        snapshot: Mapped::create(&format!("dio-powercut-cut-{}", place.number))?,
        disk,
        disk_path: &place.disk,
        aside: &place.aside,
        at: &place.at,
        states: &states,
        random: Random::of_round(!args.seed, number),
        tally,
    };
    replay.run(&log, enough)
}

/// Runs rounds until there were enough points, or the time is over. Was everything as it has to be?
fn campaign(place: &Place, args: &Args) -> bool {
    let start = Instant::now();
    let mut tally = Tally::default();
    let enough = |points: u64| {
        let over = start.elapsed() >= Duration::from_secs(args.minutes * 60);
        args.points.map_or(over, |most| points >= most)
    };
    let (name, seed) = (args.kind.name, args.seed);
    let mut number = args.first;
    while !enough(tally.points) {
        if let Err(what) = round(place, args, number, &mut tally, &enough) {
            let (points, seconds) = (tally.points, start.elapsed().as_secs());
            println!(
                "FAIL {name} seed={seed} round={number} points={points} seconds={seconds} {what}"
            );
            return false;
        }
        number += 1;
    }
    for (what, count) in &tally.kinds {
        println!("{name} {count:8} {what}");
    }
    println!("{name} {:8} writes lost, {} temporary names", tally.lost, tally.partials);
    println!("{name} {:8} rounds ended early", tally.unordered);
    let (points, rounds, seconds) = (tally.points, number - args.first, start.elapsed().as_secs());
    println!("ok {name} seed={seed} rounds={rounds} points={points} seconds={seconds}");
    true
}

pub(crate) fn main(words: &[String]) -> ExitCode {
    let args = match Args::parse(words) {
        Ok(args) => args,
        Err(why) => {
            eprintln!("dmabuf-dio-torture: {why}\n{}", args::USAGE);
            return ExitCode::from(2);
        }
    };
    if std::env::var_os("DMABUF_DIO_KERNEL").is_none() {
        eprintln!("dmabuf-dio-torture: not in a guest\nHint: vm/run --kernel 7.3 -- PROGRAM");
        return ExitCode::from(2);
    }
    match Place::prepare(args.place).map(|place| campaign(&place, &args)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("dmabuf-dio-torture: {why}");
            ExitCode::from(3)
        }
    }
}
