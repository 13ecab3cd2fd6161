// SPDX-License-Identifier: MIT OR Apache-2.0
//! File systems: made, mounted, unmounted.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::Command;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// A kind of file system.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    /// In bytes; small, so that blocks are used again, and near the least that `mkfs` makes.
    pub(crate) size: u64,
    /// Writes all that it writes now, not when the file system is first used.
    options: &'static [&'static str],
    mount: &'static str,
    /// Of what was written by `O_DIRECT`, the data is durable before the length. f2fs writes both, and
    /// then flushes once.
    pub(crate) is_ordered: bool,
}

pub(crate) const KINDS: [Kind; 4] = [
    Kind {
        name: "ext4",
        size: 64 << 20,
        options: &["-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"],
        mount: "noinit_itable",
        is_ordered: true,
    },
    Kind {
        name: "xfs",
        size: 64 << 20,
        options: &["-q", "-f", "-K", "-l", "size=8m"],
        mount: "nouuid",
        is_ordered: true,
    },
    Kind {
        name: "f2fs",
        size: 96 << 20,
        options: &["-q", "-f", "-t", "0"],
        mount: "",
        is_ordered: false,
    },
    Kind {
        name: "btrfs",
        size: 128 << 20,
        options: &["-q", "-f", "-K", "-M"],
        mount: "",
        is_ordered: true,
    },
];

impl Kind {
    pub(crate) fn of(name: &str) -> Option<&'static Self> {
        KINDS.iter().find(|kind| kind.name == name)
    }

    pub(crate) fn make(&self, device: &Path) -> Result<(), String> {
        let program = format!("mkfs.{}", self.name);
        let mut make = Command::new(&program);
        // As xfstests asks mkfs.xfs for file systems of less than 300 MiB.
        make.envs([("TEST_DIR", "/tmp"), ("TEST_DEV", "/dev/null"), ("QA_CHECK_FS", "1")]);
        let made = make
            .args(self.options)
            .arg(device)
            .output()
            .map_err(|error| format!("{program}: {error}"))?;
        if made.status.success() {
            return Ok(());
        }
        Err(format!("{program}: {}", String::from_utf8_lossy(&made.stderr).trim()))
    }

    pub(crate) fn mount<'p>(&self, device: &Path, at: &'p Path) -> Result<Mounted<'p>, String> {
        if self.name == "btrfs" {
            forget_devices();
        }
        let options = CString::new(self.mount).map_err(|error| error.to_string())?;
        mount(device, at, self.name, MountFlags::empty(), options.as_c_str())
            .map_err(|errno| format!("mount as {}: {errno}", self.name))?;
        Ok(Mounted { at })
    }
}

/// btrfs takes an older state of a device that it has seen for a mistake.
fn forget_devices() {
    /// `_IOW(0x94, 5, struct btrfs_ioctl_vol_args)`
    const FORGET: u64 = 0x5000_9405;
    let mut all = [0_u8; 4096];
    if let Ok(control) = File::options().read(true).write(true).open("/dev/btrfs-control") {
        // SAFETY: the call reads a `struct btrfs_ioctl_vol_args`, which has 4096 bytes.
        unsafe { libc::ioctl(control.as_raw_fd(), FORGET, all.as_mut_ptr()) };
    }
}

/// A mounted file system, unmounted when it is dropped.
pub(crate) struct Mounted<'p> {
    at: &'p Path,
}

impl Mounted<'_> {
    pub(crate) fn unmount(self) -> Result<(), String> {
        let result = unmount(self.at, UnmountFlags::empty());
        std::mem::forget(self);
        result.map_err(|errno| format!("umount: {errno}"))
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = unmount(self.at, UnmountFlags::empty());
    }
}
