// SPDX-License-Identifier: MIT OR Apache-2.0
//! The drivers of GPUs and NPUs (`drm/drm.h`): `/dev/dri/*`, `/dev/accel/*`.

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::OFlags;
use rustix::ioctl::{self, Opcode, opcode};

use crate::call::{self, ioctl};
use crate::layout::pin_layout;
use crate::{Errno, Result};

/// Folder of the nodes of NPUs and other accelerators, which are named `accel0` and so on.
pub const ACCELERATORS: &str = "/dev/accel";
/// Folder of the nodes of GPUs. Those named `renderD128` and so on belong to no display.
pub const GPUS: &str = "/dev/dri";

/// The longest name of a driver that [`driver`] asks for, in bytes.
const LONGEST: usize = 64;

/// `struct drm_version`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Version {
    /// Out: the version of the driver's interface.
    pub major: i32,
    /// Out.
    pub minor: i32,
    /// Out.
    pub patchlevel: i32,
    /// In: bytes at `name`. Out: bytes of the name, which has no NUL.
    pub name_len: usize,
    /// In: address of memory for the name.
    pub name: usize,
    /// As `name_len`, of a date.
    pub date_len: usize,
    /// In: an address, unused if `date_len` is 0.
    pub date: usize,
    /// As `name_len`, of a description.
    pub desc_len: usize,
    /// In: an address, unused if `desc_len` is 0.
    pub desc: usize,
}

#[cfg(target_pointer_width = "64")]
pin_layout!(Version: 64 {
    major @ 0, minor @ 4, patchlevel @ 8, name_len @ 16, name @ 24, date_len @ 32, date @ 40, desc_len @ 48, desc @ 56,
});

/// Number of the ioctl that [`driver`] makes.
pub const IOC_VERSION: Opcode = opcode::read_write::<Version>(b'd', 0);

/// Opens a node of a GPU or an NPU.
///
/// # Errors
///
/// `ENOENT`, `EACCES`, `ENXIO` and others of open(2).
pub fn open(path: &str) -> Result<OwnedFd> {
    call::open(path, OFlags::RDWR)
}

/// The name of the device's driver, such as `amdgpu`. Does not block.
///
/// # Errors
///
/// `ENOTTY`: no such device. `EILSEQ`: the name is not UTF-8.
pub fn driver(device: BorrowedFd<'_>) -> Result<String> {
    let mut name = [0_u8; LONGEST];
    let mut version = Version {
        name_len: LONGEST,
        name: name.as_mut_ptr().expose_provenance(),
        ..Version::default()
    };
    // SAFETY: IOC_VERSION reads and writes a `struct drm_version`, whose layout `Version` has, and at most `name_len`
    // bytes at `name`; the other lengths are 0.
    unsafe { ioctl(device, ioctl::Updater::<IOC_VERSION, Version>::new(&mut version))? };
    let name = &name[..version.name_len.min(LONGEST)];
    std::str::from_utf8(name).map(str::to_owned).map_err(|_| Errno::ILSEQ)
}
