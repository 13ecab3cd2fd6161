// SPDX-License-Identifier: MIT OR Apache-2.0
//! `load`: the time that each way of loading files into new buffers takes, of those in the threads "`DMA_HEAP_ALLOC_AND_READ_FILE`
//! heap flag" and "dmabuf direct I/O via `copy_file_range`".

use clap::{Args, value_parser};
use dmabuf_dio_terminal::exit::Failure;

use crate::args::{CommonArgs, EXIT_CODES, whole_pages};
use crate::disk::{DiskFile, drop_caches};
use crate::host::prepare;
use crate::measure::Meter;
use crate::measure::phase::Phase;
use crate::outcome::Result;
use crate::pattern::Pattern;
use crate::rows::{Case, Order, Report, Run};
use crate::ways::registry::LOAD;
use crate::ways::{Setup, Way};

/// Time to load files into new buffers: the ways of two threads about dma-bufs
#[derive(Debug, Args)]
#[command(after_help = format!("\
  normal    a dma-buf of the system heap, then read() into its mapping
  udmabuf   a dma-buf made of a memfd, into which bytes are read
  LOAD      allocates and reads in one call, by the heap flag of kernel/series or by the module; without
            gather it allocates all memory before it reads

Example: dmabuf-dio-bench load --dir /mnt/nvme --buffers 32 --sizes 32M

{EXIT_CODES}"))]
pub(crate) struct LoadArgs {
    /// Sizes of a file, multiples of the page size
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = whole_pages,
          default_value = "512K,8M,1G,3G")]
    pub(crate) sizes: Vec<u64>,
    /// Files, each with a buffer of its own
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = value_parser!(u64).range(1..=512))]
    pub(crate) buffers: u64,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// Bytes of each file that are transferred in the uncounted run.
const FIRST: u64 = 8 << 20;

pub(crate) fn measure(args: &LoadArgs) -> Result<Report, Failure> {
    let mut report = Report::start("load", &args.common)?;
    report.fact("buffers", args.buffers);
    for &bytes in &args.sizes {
        let memory = bytes.saturating_mul(args.buffers);
        let content = |_| Pattern::new(bytes);
        let disks = &prepare(&args.common.dir, None, (args.buffers, bytes), memory, content)?;
        let cases = LOAD.map(|(name, way)| {
            Case::new(vec![("size", bytes.into()), ("way", name.into())], move |run| {
                let len = if run == 0 { bytes.min(FIRST) } else { bytes };
                sample(disks.as_ref().map_err(Clone::clone)?, way, len, args.common.keep_caches)
            })
        });
        report.measure(cases.into(), 0..=args.common.runs, Order::Turns)?;
    }
    Ok(report)
}

/// Fills a buffer from each file, compares and overwrites all, then closes them.
fn sample(disks: &[DiskFile], way: Way, len: u64, keep_caches: bool) -> Result<Run> {
    disks.iter().for_each(DiskFile::forget);
    drop_caches(&disks[0], keep_caches);
    let mut meter = Meter::default();
    let fill = |disk| {
        let mut setup = Setup::new(disk, len);
        Ok((way.run(&mut setup, &mut meter)?, setup))
    };
    let mut filled = disks.iter().map(fill).collect::<Result<Vec<_>>>()?;
    for ((held, _), disk) in filled.iter_mut().zip(disks) {
        held.check(len, true, |bytes| disk.check(bytes, 0))?;
    }
    for (held, setup) in filled {
        setup.close(held, &mut meter);
    }
    let ms = |(name, phase)| Some((name, meter.of(phase)?.wall_ms));
    let phases =
        [("allocation_ms", Phase::Allocation), ("io_ms", Phase::Io), ("close_ms", Phase::Close)];
    let phases = phases.into_iter().filter_map(ms);
    let io_cpu = meter.of(Phase::Io).map(|io| ("io_cpu_ms", io.cpu_ms));
    let total = meter.until_loaded();
    let all = [("total_ms", total.wall_ms), ("total_cpu_ms", total.cpu_ms)];
    Ok(phases.chain(io_cpu).chain(all).collect())
}
