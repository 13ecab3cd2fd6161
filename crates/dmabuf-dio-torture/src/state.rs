// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a round has to give back, and what the kernel says about it.

use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::Duration;

use crate::machine::Machine;
use crate::procfs::{dma_bufs, number};

/// Messages that mean a bug, as in `vm/kernel-log/problems`, which the guest's runner applies in full.
const PROBLEMS: &[&str] = &[
    "BUG",
    "WARNING:",
    "Oops",
    "general protection fault",
    "KASAN",
    "UBSAN",
    "possible circular",
    "possible recursive",
    "inconsistent lock",
    "bad unlock balance",
    "lock held when returning",
    "suspicious RCU",
    "sleeping function",
    "scheduling while atomic",
    "blocked for more than",
    "soft lockup",
    "Bad page",
    "refcount_t:",
    "list_add corruption",
    "list_del corruption",
    "ODEBUG:",
    "Poison overwritten",
    "Redzone overwritten",
    "nable to handle",
];

/// Counted before a round and after it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Counts {
    descriptors: usize,
    /// Pages that are pinned.
    pinned: i64,
    /// References to the module.
    references: i64,
    /// dma-bufs in the system.
    buffers: i64,
    /// Processors that are online.
    processors: i64,
}

/// Also what changes a little by itself.
pub(crate) struct State {
    counts: Counts,
    free_blocks: i64,
    log: std::fs::File,
}

fn counts() -> Counts {
    // Adds up what each processor has counted.
    let _ = std::fs::write("/proc/sys/vm/stat_refresh", "1");
    let vmstat = std::fs::read_to_string("/proc/vmstat").unwrap_or_default();
    let value = |name: &str| {
        let line = vmstat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|word| word.parse().ok()).unwrap_or(0)
    };
    Counts {
        descriptors: std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count),
        pinned: value("nr_foll_pin_acquired") - value("nr_foll_pin_released"),
        references: number("/sys/module/dmabuf_dio/refcnt", ""),
        buffers: dma_bufs(),
        // SAFETY: takes a number.
        processors: unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) },
    }
}

/// Available memory without caches, in bytes.
fn available() -> i64 {
    let _ = std::fs::write("/proc/sys/vm/drop_caches", "3");
    number("/proc/meminfo", "MemAvailable:") << 10
}

/// Memory that rounds have in the end not given back: each may keep a little for a while.
pub(crate) struct Memory(i64);

impl Memory {
    pub(crate) fn look() -> Self {
        Self(available())
    }

    /// `most`: bytes that may be missing.
    pub(crate) fn is_there(&self, most: i64) -> Result<(), String> {
        // On a machine that does much else, tens of MiB are away for a moment. What is lost stays lost.
        for _ in 0..200 {
            if available() + most >= self.0 {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Err(format!("{} MiB of memory are gone", (self.0 - available()) >> 20))
    }
}

fn free_blocks(machine: &Machine) -> i64 {
    rustix::fs::statvfs(&machine.folder).map_or(0, |stat| stat.f_bfree as i64)
}

impl State {
    pub(crate) fn look(machine: &Machine) -> Result<Self, String> {
        let mut options = std::fs::OpenOptions::new();
        let log = options.read(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg");
        let mut log = log.map_err(|error| format!("/dev/kmsg: {error}"))?;
        std::io::Seek::seek(&mut log, std::io::SeekFrom::End(0))
            .map_err(|error| format!("/dev/kmsg: {error}"))?;
        Ok(Self { counts: counts(), free_blocks: free_blocks(machine), log })
    }

    /// Waits until all is as it was: rings and files are freed a moment after they are closed.
    pub(crate) fn await_again(mut self, machine: &Machine) -> Result<(), String> {
        let mut now = counts();
        let mut blocks = free_blocks(machine);
        for _ in 0..300 {
            if now == self.counts && blocks + 32 >= self.free_blocks {
                break;
            }
            if blocks + 32 < self.free_blocks {
                // btrfs frees blocks with its next transaction.
                rustix::fs::sync();
            }
            std::thread::sleep(Duration::from_millis(20));
            (now, blocks) = (counts(), free_blocks(machine));
        }
        if let Some(line) = self.problem() {
            return Err(format!("the kernel log: {line}"));
        }
        if now != self.counts {
            return Err(format!("not given back: {now:?}, before {:?}", self.counts));
        }
        if blocks + 32 < self.free_blocks {
            return Err(format!(
                "{} blocks of the disk are not free again",
                self.free_blocks - blocks
            ));
        }
        Ok(())
    }

    fn problem(&mut self) -> Option<String> {
        let mut line = vec![0; 8192];
        loop {
            match self.log.read(&mut line) {
                Ok(read) => {
                    let text = String::from_utf8_lossy(&line[..read]);
                    let text = text.split_once(';').map_or("", |(_, text)| text).lines().next();
                    let text = text.unwrap_or_default();
                    if PROBLEMS.iter().any(|problem| text.contains(problem)) {
                        return Some(text.to_owned());
                    }
                }
                // Messages were overwritten before they were read.
                Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
                Err(_) => return None,
            }
        }
    }
}
