// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernel settings that are changed for a contender and restored afterwards.

use std::path::Path;

use crate::buffer::mapping::{Pages, huge_page};
use crate::host::setting::{self, Setting};
use crate::measure::outcome::Trouble;
use crate::report::json::Object;

/// Number of surplus huge pages allowed.
const OVERCOMMIT: &str = "/proc/sys/vm/nr_overcommit_hugepages";
/// Number of reserved huge pages.
const RESERVED: &str = "/proc/sys/vm/nr_hugepages";
/// Transparent huge pages for memfds and for anonymous memory.
const SHMEM: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
const ANONYMOUS: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
/// Huge pages in addition to the file's memory.
const SPARE: u64 = 64;

/// The settings of a contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CompareSettings {
    /// Which pages shared memory can have.
    pub(crate) pages: Pages,
    /// Read-ahead of the device in KiB; `None`: unchanged.
    pub(crate) read_ahead: Option<u32>,
}

impl CompareSettings {
    /// Applies them until the returned value is dropped. Huge pages for `bytes` are set if permitted;
    /// every other setting is required.
    pub(crate) fn apply(self, bytes: u64, device: Option<&str>) -> Result<Vec<Setting>, Trouble> {
        let mut held = Vec::new();
        match self.pages {
            Pages::Huge => {
                let pages = bytes.div_ceil(huge_page()) + SPARE;
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

/// The sysfs file with the read-ahead of a device.
fn read_ahead(device: &str) -> String {
    format!("/sys/block/{device}/queue/read_ahead_kb")
}

fn wanted(path: &str, value: &str) -> Result<Setting, Trouble> {
    Setting::required(path, value, "this device has no such setting")
}

/// The machine's own settings, before any change.
#[derive(Debug)]
pub(crate) struct SettingsFound {
    pub(crate) read_ahead_kb: Option<String>,
    pub(crate) json: Object,
}

impl SettingsFound {
    pub(crate) fn now(device: Option<&str>) -> Self {
        let read = |path: &str| setting::read(path).ok();
        let read_ahead_kb = device.and_then(|device| read(&read_ahead(device)));
        let json = Object::default()
            .with("read_ahead_kb", read_ahead_kb.clone())
            .with("nr_hugepages", read(RESERVED))
            .with("nr_overcommit_hugepages", read(OVERCOMMIT))
            .with("transparent_hugepage_enabled", read(ANONYMOUS))
            .with("transparent_hugepage_shmem_enabled", read(SHMEM));
        Self { read_ahead_kb, json }
    }
}
