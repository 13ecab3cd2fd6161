// SPDX-License-Identifier: MIT OR Apache-2.0
//! `compare`: how fast every available way and program loads a file, relative to the disk's maximum.

pub(crate) mod child;
mod contender;
mod safetensors;

use clap::{Args, value_parser};
use dmabuf_dio_terminal::exit::Failure;

use crate::args::{CommonArgs, EXIT_CODES, whole_pages};
use crate::disk::{DiskFile, drop_caches};
use crate::host::{lack_of_memory, prepare, touch_memory};
use crate::outcome::Result;
use crate::pattern::Pattern;
use crate::rows::{Case, Order, Report, Run};
use child::LoaderReport;
use contender::{Contender, Peer};
use safetensors::{Tensors, content};

/// Every method of loading a file into memory, and the disk's maximum
#[derive(Debug, Args)]
#[command(after_help = format!("\
Each method is measured in its own process, from knowing only the path to having all bytes in memory.
As root, the program allows huge pages and sets read-ahead while a method that needs them is measured.
A peer is a command that docs/notes/measuring.md describes.

Example: dmabuf-dio-bench compare --processes 4 --sizes 1G --peer 'safetensors=python3 load.py'

{EXIT_CODES}"))]
pub(crate) struct CompareArgs {
    /// Sizes of a file, multiples of the page size; those below 1 MiB have five times as many runs
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = whole_pages,
          default_value = "512K,8M,128M,1G,3G")]
    pub(crate) sizes: Vec<u64>,
    /// Processes that load at the same time, each its own file
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = value_parser!(u64).range(1..=64))]
    pub(crate) processes: u64,
    /// Content of the file
    #[arg(long, value_enum, default_value_t = Tensors::Few)]
    pub(crate) tensors: Tensors,
    /// Another program that loads a file, for comparison; may be repeated
    #[arg(long = "peer", value_name = "NAME=COMMAND", value_parser = peer)]
    pub(crate) peers: Vec<Peer>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

fn peer(text: &str) -> Result<Peer, String> {
    match text.split_once('=') {
        Some((name, command)) if !name.is_empty() && !command.trim().is_empty() => {
            Ok((name.into(), command.into()))
        }
        _ => Err("write NAME=COMMAND".into()),
    }
}

/// Below this length, runs are short and more of them are needed.
const SMALL: u64 = 1 << 20;
const MANY: i32 = 5;

pub(crate) fn measure(args: &CompareArgs) -> Result<Report, Failure> {
    let mut report = Report::start("compare", &args.common)?;
    report.fact("fio", crate::fio::version());
    report.fact("processes", args.processes);
    report.fact("tensors", args.tensors.name());
    // A peer may change its folder before it opens the file.
    let dir = std::fs::canonicalize(&args.common.dir)?;
    for &bytes in &args.sizes {
        let content = |number| content(bytes, args.tensors, Pattern::new(number));
        let files = &prepare(&dir, Some(".safetensors"), (args.processes, bytes), 0, content)?;
        let cases = Contender::all(bytes, &args.peers).map(|contender| {
            let about = vec![("size", bytes.into()), ("way", contender.name().into())];
            Case::new(about, move |run| {
                sample(args, files.as_ref().map_err(Clone::clone)?, &contender, run == 1)
            })
        });
        let runs = args.common.runs * if bytes < SMALL { MANY } else { 1 };
        report.measure(cases.collect(), 1..=runs, Order::Turns)?;
    }
    Ok(report)
}

fn sample(
    args: &CompareArgs,
    files: &[DiskFile],
    contender: &Contender,
    verify: bool,
) -> Result<Run> {
    let total = files.iter().map(|file| file.len).sum();
    // The page cache can be reclaimed.
    lack_of_memory(contender.memory(total).min(total))?;
    let device = files.first().and_then(DiskFile::device);
    let _until_done = contender.set(total, device.as_deref())?;
    for file in files {
        drop_caches(file, args.common.keep_caches);
    }
    // More than is needed: others take some of it in between.
    let touched = 2 * contender.memory(total);
    Ok(run(&contender.run(files, args.tensors, verify, || touch_memory(touched))?))
}

/// The time is that of the last process, CPU time that of all.
fn run(told: &[LoaderReport]) -> Run {
    vec![
        ("seconds", told.iter().map(|told| told.seconds).fold(0.0, f64::max)),
        ("cpu_seconds", told.iter().map(|told| told.cpu_seconds).sum()),
    ]
}
