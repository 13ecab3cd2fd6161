// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel is told before a contender is measured, and set back after it.

use std::path::Path;

use rustix::io::Errno as Os;
use serde::Serialize;

use crate::buffer::mapping::{HUGE_PAGE, Pages};
use crate::host::setting::{self, Setting};
use crate::measure::outcome::{Trouble, os};

/// Huge pages that may be made beyond those reserved.
const OVERCOMMIT: &str = "/proc/sys/vm/nr_overcommit_hugepages";
/// Huge pages that are reserved.
const RESERVED: &str = "/proc/sys/vm/nr_hugepages";
/// Transparent huge pages, of memfds and of anonymous memory.
const SHMEM: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
const ANONYMOUS: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
/// Huge pages for others than the file's memory.
const SPARE: u64 = 64;

/// What a contender wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Which pages shared memory can have.
    pub(crate) pages: Pages,
    /// Of the device, in KiB; as it is if `None`.
    pub(crate) read_ahead: Option<u32>,
}

impl Settings {
    /// Sets them until what is returned is dropped. Huge pages for `bytes` are set if this user
    /// may; everything else has to be as wanted.
    pub(crate) fn apply(self, bytes: u64, device: Option<&str>) -> Result<Vec<Setting>, Trouble> {
        let mut held = Vec::new();
        match self.pages {
            Pages::Huge => {
                let pages = bytes.div_ceil(HUGE_PAGE) + SPARE;
                held.extend(Setting::set(OVERCOMMIT, &pages.to_string()));
                held.extend(Setting::set(SHMEM, "advise"));
            }
            Pages::Small => {
                for (path, value) in [(OVERCOMMIT, "0"), (RESERVED, "0"), (SHMEM, "never")] {
                    // A kernel without huge pages lacks the settings too.
                    if Path::new(path).exists() {
                        held.push(wanted(path, value)?);
                    }
                }
            }
        }
        if let Some(kib) = self.read_ahead {
            let path = read_ahead(device.unwrap_or("?"));
            held.push(wanted(&path, &kib.to_string())?);
        }
        Ok(held)
    }
}

/// Where the read-ahead of a device is set.
fn read_ahead(device: &str) -> String {
    format!("/sys/block/{device}/queue/read_ahead_kb")
}

fn wanted(path: &str, value: &str) -> Result<Setting, Trouble> {
    Setting::set(path, value).map_err(|error| {
        let errno = os(&error);
        let why = match errno {
            Os::NOENT => "this device has no such setting".into(),
            _ => format!("it has to be {value}: run as root"),
        };
        Trouble::unavailable(path, errno, &why)
    })
}

/// How the machine is set up without us.
#[derive(Debug, Serialize)]
pub(crate) struct SettingsFound {
    pub(crate) read_ahead_kb: Option<String>,
    nr_hugepages: Option<String>,
    nr_overcommit_hugepages: Option<String>,
    transparent_hugepage_enabled: Option<String>,
    transparent_hugepage_shmem_enabled: Option<String>,
}

impl SettingsFound {
    pub(crate) fn now(device: Option<&str>) -> Self {
        let read = |path: &str| setting::read(path).ok();
        Self {
            read_ahead_kb: device.and_then(|device| read(&read_ahead(device))),
            nr_hugepages: read(RESERVED),
            nr_overcommit_hugepages: read(OVERCOMMIT),
            transparent_hugepage_enabled: read(ANONYMOUS),
            transparent_hugepage_shmem_enabled: read(SHMEM),
        }
    }
}
