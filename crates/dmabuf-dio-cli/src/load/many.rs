// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads several files at the same time.

use std::num::NonZero;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use dmabuf_dio::{Buffer, Direction, Error, Kind, Numa, Progress, Report, probe};
use dmabuf_dio_terminal::exit::{FAILED, Failure};
use dmabuf_dio_terminal::progress::Bar;
use dmabuf_dio_terminal::signals;
use rustix::time::{ClockId, clock_gettime};

use super::loader::{loader, loader_of};
use super::plan::{Load, Plan};
use super::verify::Verified;
use crate::args::files::LoadArgs;
use crate::args::url::shown;
use crate::show::exact;

/// Loads at the same time. One load keeps the disk busy. The others use the disk while that one
/// allocates memory or ends. More only compete for memory bandwidth.
const MOST_AT_ONCE: usize = 4;

/// Files that this process has open besides those that it loads.
const OTHER_FILES: u64 = 32;

/// A loaded file and its report.
pub(super) struct Ready<'a> {
    pub(super) load: &'a Load,
    pub(super) file: Buffer,
    pub(super) report: Report,
    pub(super) verified: Option<Verified>,
}

/// The cost of loading all files.
#[derive(Debug)]
pub(crate) struct Cost {
    pub(crate) bytes: u64,
    pub(crate) seconds: f64,
    pub(crate) cpu_seconds: f64,
    /// Bytes read from storage, if the kernel counts them.
    pub(crate) storage_bytes: Option<u64>,
}

/// Loads and seals the files of a plan, in its order.
pub(crate) fn load(plan: &Plan, args: &LoadArgs) -> Result<(Vec<Buffer>, Cost), Failure> {
    check_memory(plan, args)?;
    check_files(plan)?;
    let before = (Instant::now(), cpu_seconds(), storage_bytes());
    let files = load_all(plan, args)?;
    let cost = Cost {
        bytes: files.iter().map(Buffer::data_len).sum(),
        seconds: before.0.elapsed().as_secs_f64(),
        cpu_seconds: cpu_seconds() - before.1,
        storage_bytes: before.2.zip(storage_bytes()).map(|(before, now)| now - before),
    };
    Ok((files, cost))
}

/// Checks the memory for all files together: a load does not count other loads that run at the same
/// time.
fn check_memory(plan: &Plan, args: &LoadArgs) -> Result<(), Failure> {
    let wanted = args.length.unwrap_or_else(|| plan.bytes().saturating_sub(args.offset));
    if plan.loads.len() < 2 {
        return Ok(());
    }
    let on_node = match args.numa {
        Some(Numa::Node(node)) => probe::available_memory_of(node).map(|bytes| (bytes, Some(node))),
        _ => None,
    };
    let all = probe::available_memory().map(|bytes| (bytes, None));
    let lack = [on_node, all].into_iter().flatten().find(|(available, _)| wanted > *available);
    let Some((available, node)) = lack else { return Ok(()) };
    let place = node.map_or_else(String::new, |node| format!(" on node {node}"));
    Err(Failure::new(
        FAILED,
        format!(
            "the files to load need {}, and {} are available{place}",
            exact(wanted),
            exact(available)
        ),
        if plan.is_folder() {
            "free memory, or load fewer files: --min-size"
        } else {
            "free memory, or load a smaller model"
        },
    ))
}

/// Fails if this process may not have so many open files: each that is loaded is one.
fn check_files(plan: &Plan) -> Result<(), Failure> {
    let (wanted, limit) = (plan.loads.len() as u64, probe::most_open_files());
    match limit.filter(|limit| wanted > 1 && wanted + OTHER_FILES > *limit) {
        None => Ok(()),
        Some(limit) => Err(Failure::new(
            FAILED,
            format!("{wanted} files are to be loaded, and this process may have {limit} open"),
            format!("raise the limit: ulimit -n {}", wanted + 2 * OTHER_FILES),
        )),
    }
}

fn load_all(plan: &Plan, args: &LoadArgs) -> Result<Vec<Buffer>, Failure> {
    // The largest files come first, so that no large file is loaded alone at the end.
    let mut order: Vec<usize> = (0..plan.loads.len()).collect();
    order.sort_by_key(|&index| std::cmp::Reverse(plan.loads[index].length));
    let next = AtomicUsize::new(0);
    let total = Total::new(plan.bytes());
    let loaded: Vec<Mutex<Option<Buffer>>> = order.iter().map(|_| Mutex::default()).collect();
    let failure = Mutex::new(None);
    let work = || {
        while let Some(&index) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
            let load = &plan.loads[index];
            let error = if signals::token().is_cancelled() {
                let (path, length) = (shown(load.source()), load.length);
                Error::Cancelled { path, direction: Direction::Load, done: 0, length }
            } else {
                match load_one(plan, load, args, &total) {
                    Ok(file) => {
                        *lock(&loaded[index]) = Some(file);
                        continue;
                    }
                    Err(error) => error,
                }
            };
            // The other loads are of no use now. Their errors come later.
            lock(&failure).get_or_insert(error);
            signals::token().cancel();
            break;
        }
    };
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let threads = threads.clamp(2, MOST_AT_ONCE).min(order.len());
    thread::scope(|scope| {
        for _ in 1..threads {
            // The existing threads do the work.
            if thread::Builder::new().spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        work();
    });
    total.bar.finish();
    if let Some(error) = failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error.into());
    }
    let files =
        loaded.into_iter().map(|file| file.into_inner().unwrap_or_else(PoisonError::into_inner));
    Ok(files.flatten().collect())
}

fn load_one(plan: &Plan, load: &Load, args: &LoadArgs, total: &Total) -> Result<Buffer, Error> {
    let place = &load.names[0].place;
    let mut loader = match (&plan.store, place.strip_prefix(&plan.name)) {
        (Some(store), Ok(name)) => loader_of(store.open(name)?, args),
        _ => loader(load.source(), args)?,
    };
    if !args.common.quiet {
        loader = loader.progress(total.callback());
    }
    let mut file = loader.kind(Kind::File).load()?;
    file.seal()?;
    Ok(file)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The progress of all loads, in one bar.
struct Total {
    bar: Bar,
    done: Arc<AtomicU64>,
    bytes: u64,
}

impl Total {
    fn new(bytes: u64) -> Self {
        Self { bar: Bar::new("loading"), done: Arc::default(), bytes }
    }

    /// A callback for one of the loads.
    fn callback(&self) -> impl Fn(Progress) + Send + Sync + 'static {
        let (bar, done, bytes) = (self.bar.clone(), self.done.clone(), self.bytes);
        let mine = AtomicU64::new(0);
        move |progress| {
            let more = progress.done.saturating_sub(mine.swap(progress.done, Ordering::Relaxed));
            let done = done.fetch_add(more, Ordering::Relaxed) + more;
            bar.update(done, bytes.max(done).max(progress.total));
        }
    }
}

/// User and system time of all threads of this process.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn storage_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/io").ok()?;
    text.lines().find_map(|line| line.strip_prefix("read_bytes: ")?.parse().ok())
}
