// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program that loads a file, built-in or other, and the process that does it in a built-in way. A separate process has
//! its own memory and CPU time.
//!
//! The program's argument is the path of the file, followed by `--verify SEED` if it is to compare
//! bytes. When ready, it prints [`READY`] and waits for a line on its standard input. Then it loads
//! the file and prints a [`LoaderReport`] in one line. If it fails, it prints the reason as the last
//! line of its standard error and exits with a code other than 0.

use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::path::PathBuf;

use clap::Args;
use dmabuf_dio_terminal::exit::Failure;
use serde::{Deserialize, Serialize};

use super::safetensors::{Tensors, content};
use crate::disk::DiskFile;
use crate::measure::phase::Phase;
use crate::measure::{Meter, Span};
use crate::outcome::{Result, Status, failed};
use crate::pattern::Pattern;
use crate::ways::Setup;
use crate::ways::registry::{COMPARE, OwnWay};

/// The first line.
pub(crate) const READY: &str = r#"{"ready":true}"#;

/// The second line: the cost of loading, from the path to all bytes in memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LoaderReport {
    pub(crate) seconds: f64,
    /// CPU time of all its threads.
    pub(crate) cpu_seconds: f64,
    pub(crate) bytes: u64,
    /// `null` without `--verify`.
    pub(crate) verified: Option<bool>,
    /// What was wrong.
    #[serde(default)]
    pub(crate) difference: Option<String>,
}

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

fn own_way(name: &str) -> Result<&'static OwnWay, String> {
    COMPARE.iter().find(|own| own.name == name).ok_or_else(|| "there is no such way".into())
}

pub(crate) fn run(args: &CompareWayArgs) -> Result<(), Failure> {
    cache_code();
    say(READY)?;
    if io::stdin().read_line(&mut String::new())? == 0 {
        // Whoever started this is gone.
        return Ok(());
    }
    let told = measure(args)?;
    say(&serde_json::to_string(&told).map_err(io::Error::from)?)
}

fn measure(args: &CompareWayArgs) -> Result<LoaderReport> {
    let span = Span::begin(None, Phase::Load);
    // All of it counts, also what the ways of other benchmarks do before their first phase.
    let len = std::fs::metadata(&args.file).map_err(failed("stat"))?.len();
    let disk = DiskFile::existing(&args.file, len);
    let mut held = args.way.way.run(&mut Setup::new(&disk, len), &mut Meter::default())?;
    let took = span.end();
    // After the time has been taken, and before the memory is gone.
    let mut difference = None;
    if let Some(seed) = args.verify {
        let content = content(len, args.tensors, Pattern::from_seed(seed));
        match held.check(len, false, |bytes| content.check(bytes, 0)) {
            Err(trouble) if trouble.status == Status::Different => {
                difference = Some(trouble.reason);
            }
            found => found?,
        }
    }
    Ok(LoaderReport {
        seconds: took.wall_ms / 1e3,
        cpu_seconds: took.cpu_ms / 1e3,
        bytes: held.len(len),
        verified: args.verify.map(|_| difference.is_none()),
        difference,
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
