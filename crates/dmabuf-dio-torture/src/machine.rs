// SPDX-License-Identifier: MIT OR Apache-2.0
//! What this machine can do.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use dmabuf_dio_sys::{dio, heap, udmabuf};

use crate::procfs::number;

/// Opened once for all rounds.
#[allow(clippy::struct_excessive_bools)] // independent of each other
pub(crate) struct Machine {
    /// Where files are made.
    pub(crate) folder: PathBuf,
    pub(crate) heap: Option<OwnedFd>,
    pub(crate) udmabuf: Option<OwnedFd>,
    /// `kernel/sim/odd_exporter`
    pub(crate) odd: Option<OwnedFd>,
    /// The module was told to borrow from it.
    pub(crate) odd_named: bool,
    pub(crate) slots: bool,
    pub(crate) join: bool,
    /// There are huge pages for memfds of hugetlb.
    pub(crate) huge: bool,
    /// The kernel has the series: loans, `copy_file_range()`, the heaps' flag.
    pub(crate) series: bool,
    /// Devices' fences can be made.
    pub(crate) fences: bool,
    /// Control groups of version 2
    pub(crate) groups: bool,
    /// It can be suspended for a moment.
    pub(crate) suspends: bool,
    /// A processor that can go offline
    pub(crate) processor: Option<usize>,
    /// `/proc/thread-self/fail-nth`
    pub(crate) fail_nth: bool,
    /// The command `dmabuf-dio`, if there is one beside this program.
    pub(crate) command: Option<PathBuf>,
    /// What was done, and how often.
    pub(crate) tally: RefCell<BTreeMap<&'static str, u64>>,
}

impl Machine {
    /// Notes that something was done.
    pub(crate) fn did(&self, what: &'static str) {
        *self.tally.borrow_mut().entry(what).or_default() += 1;
    }

    pub(crate) fn look(folder: PathBuf) -> Result<Self, String> {
        if rustix::param::page_size() != crate::pages::PAGE {
            return Err("the campaign knows pages of 4 KiB only".into());
        }
        let context = dio::open().map_err(|errno| format!("{}: {errno}", dio::DEVICE))?;
        let features = dio::info(std::os::fd::AsFd::as_fd(&context))
            .map_err(|errno| format!("INFO: {errno}"))?
            .features;
        let kernel = std::env::var("DMABUF_DIO_KERNEL").unwrap_or_default();
        let named = std::fs::read_to_string("/sys/module/dmabuf_dio/parameters/exporters");
        let odd = std::fs::OpenOptions::new().read(true).write(true).open("/dev/odd_exporter");
        Ok(Self {
            folder,
            heap: heap::open(heap::SYSTEM).ok(),
            udmabuf: udmabuf::open().ok(),
            odd: odd.ok().map(OwnedFd::from),
            odd_named: named.is_ok_and(|names| names.trim() == "odd_exporter"),
            slots: features & dio::FEATURE_SLOTS != 0,
            join: features & dio::FEATURE_JOIN != 0,
            huge: huge_pages(),
            series: kernel.contains("series"),
            fences: crate::fence::possible()
                .inspect_err(|why| eprintln!("no fences: {why}"))
                .is_ok(),
            groups: crate::control::prepare(),
            suspends: crate::freezer::prepare(),
            processor: processor(),
            command: command(),
            tally: RefCell::default(),
            fail_nth: std::fs::exists("/proc/thread-self/fail-nth").unwrap_or(false),
        })
    }
}

fn command() -> Option<PathBuf> {
    let path = std::env::current_exe().ok()?.with_file_name("dmabuf-dio");
    path.is_file().then_some(path)
}

/// Its file in sysfs
pub(crate) fn online(processor: usize) -> String {
    format!("/sys/devices/system/cpu/cpu{processor}/online")
}

/// The last one, if it can.
fn processor() -> Option<usize> {
    (1..64).rev().find(|number| std::fs::write(online(*number), "1").is_ok())
}

/// Reserves as many as all memfds and buffers of a round may have.
fn huge_pages() -> bool {
    const WANTED: i64 = 10;
    let path = "/proc/sys/vm/nr_hugepages";
    let _ = std::fs::write(path, WANTED.to_string());
    let two = number("/proc/meminfo", "Hugepagesize:") == 2048;
    two && number(path, "") >= WANTED
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let has = [
            ("heap", self.heap.is_some()),
            ("udmabuf", self.udmabuf.is_some()),
            ("odd", self.odd_named),
            ("huge", self.huge),
            ("slots", self.slots),
            ("join", self.join),
            ("series", self.series),
            ("fences", self.fences),
            ("groups", self.groups),
            ("suspend", self.suspends),
            ("hotplug", self.processor.is_some()),
            ("fail-nth", self.fail_nth),
            ("adc", dmabuf_dio_stream::Device::find("stream-adc").is_some()),
            ("command", self.command.is_some()),
        ];
        has.iter().try_for_each(|(name, has)| write!(f, "{name}={has} "))
    }
}
