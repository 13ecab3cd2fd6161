// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process that loads the file once in a built-in way. A separate process has its own memory
//! and CPU time.

use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::path::PathBuf;

use clap::Args;
use dmabuf_dio_terminal::exit::{FAILED, Failure, UNAVAILABLE};

use super::contract::{LoaderReport, READY};
use super::safetensors::{SafeTensors, Tensors};
use crate::measure::meter::Meter;
use crate::measure::outcome::{Status, Trouble};
use crate::measure::phase::Phase;
use crate::measure::time::Start;
use crate::pattern::Pattern;
use crate::ways::Setup;
use crate::ways::registry::{COMPARE, OwnWay};

/// Load a file once, in one way: started by `compare`
#[derive(Debug, Args)]
#[command(hide = true)]
pub(crate) struct CompareWayArgs {
    #[arg(long, value_parser = own_way)]
    pub(crate) way: &'static OwnWay,
    /// Compare every byte with the expected content
    #[arg(long, value_name = "SEED")]
    pub(crate) verify: Option<u64>,
    #[arg(long, value_enum)]
    pub(crate) tensors: Tensors,
    pub(crate) file: PathBuf,
}

pub(crate) fn own_way(id: &str) -> Result<&'static OwnWay, String> {
    COMPARE.iter().find(|own| own.id == id).ok_or_else(|| {
        let ids: [_; COMPARE.len()] = COMPARE.map(|own| own.id);
        format!("there is no such way; the ways are {}", ids.join(", "))
    })
}

pub(crate) fn run(args: &CompareWayArgs) -> Result<(), Failure> {
    cache_code();
    say(READY)?;
    if io::stdin().read_line(&mut String::new())? == 0 {
        // Whoever started this is gone.
        return Ok(());
    }
    let told = measure(args).map_err(|trouble| {
        let code = if trouble.status == Status::Unavailable { UNAVAILABLE } else { FAILED };
        Failure::new(code, trouble.reason, "")
    })?;
    say(&serde_json::to_string(&told).map_err(io::Error::from)?)
}

fn measure(args: &CompareWayArgs) -> Result<LoaderReport, Trouble> {
    let mut meter = Meter::default();
    let start = Start::now();
    // All of it counts, also what the ways of other benchmarks do before their first phase.
    let held = args.way.way.run(&mut Setup::of_path(&args.file), &mut meter)?;
    let took = start.took();
    let len = std::fs::metadata(&args.file).map_or(0, |file| file.len());
    let bytes = held.len(len);
    let pages = held.pages(bytes);
    let different = match args.verify {
        None => None,
        // After the time has been taken, and before the memory is gone.
        Some(seed) => {
            let content = SafeTensors::new(len, args.tensors, Pattern::from_seed(seed));
            Some(held.look(bytes, |bytes| content.check(bytes))?.err())
        }
    };
    Setup::of_path(&args.file).close(held, &mut meter);
    Ok(LoaderReport {
        seconds: took.wall_ms / 1e3,
        user_seconds: took.cpu.user / 1e3,
        sys_seconds: took.cpu.sys / 1e3,
        release_seconds: meter.ms(Phase::Close).map(|ms| ms / 1e3),
        bytes,
        verified: different.as_ref().map(Option::is_none),
        version: None,
        note: different.flatten().map(|difference| difference.to_string()),
        pages,
    })
}

/// Reads the program and its libraries into the page cache, which was just dropped, so that their
/// page faults are not measured.
fn cache_code() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let files: BTreeSet<&str> =
        maps.lines().filter_map(|line| line.find('/').map(|at| &line[at..])).collect();
    for file in files {
        // What cannot be read is no program.
        let _ = std::fs::read(file);
    }
}

fn say(line: &str) -> Result<(), Failure> {
    let mut out = io::stdout();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}
