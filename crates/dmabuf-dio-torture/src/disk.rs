// SPDX-License-Identifier: MIT OR Apache-2.0
//! A small disk parts of which fail on demand: the device mapper over the guest's raw disk. Its
//! size is not a multiple of a page.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;

/// Bytes.
pub(crate) const SIZE: usize = (256 << 10) + 1536;

const SECTOR: usize = 512;
const NAME: &[u8] = b"dio-torture";

/// `_IOWR(0xfd, number, struct dm_ioctl)`
const fn request(number: u64) -> u64 {
    (3 << 30) | ((size_of::<Head>() as u64) << 16) | (0xfd << 8) | number
}

const CREATE: u64 = request(3);
const REMOVE: u64 = request(4);
const SUSPEND: u64 = request(6);
const LOAD: u64 = request(9);
/// Neither waits for a file system nor freezes it.
const SKIP_LOCKFS: u32 = 1 << 10;

/// `struct dm_ioctl` of `linux/dm-ioctl.h`
#[repr(C)]
#[derive(Clone, Copy)]
struct Head {
    version: [u32; 3],
    data_size: u32,
    data_start: u32,
    target_count: u32,
    open_count: i32,
    flags: u32,
    event_nr: u32,
    padding: u32,
    dev: u64,
    name: [u8; 128],
    uuid: [u8; 129],
    data: [u8; 7],
}

/// A call's argument.
#[repr(C)]
struct Argument {
    head: Head,
    targets: [Target; 3],
}

/// `struct dm_target_spec` and the target's arguments
#[repr(C)]
#[derive(Clone, Copy)]
struct Target {
    start: u64,
    length: u64,
    status: i32,
    next: u32,
    kind: [u8; 16],
    arguments: [u8; 64],
}

/// The disk; its users close it first.
pub(crate) struct Disk {
    control: File,
    below: String,
    /// Its node.
    pub(crate) path: PathBuf,
    /// The part that fails.
    pub(crate) broken: Range<usize>,
}

fn padded<const N: usize>(text: &[u8]) -> [u8; N] {
    let mut padded = [0; N];
    padded[..text.len()].copy_from_slice(text);
    padded
}

impl Disk {
    /// `None` without a raw disk or the device mapper.
    pub(crate) fn create() -> Option<Self> {
        let below = std::env::var("DMABUF_DIO_RAW_DISK").ok()?;
        let control = "/dev/mapper/control";
        if !std::fs::exists(control).unwrap_or(false) {
            let _ = std::process::Command::new("modprobe").args(["-q", "dm_mod"]).status();
        }
        let control = File::options().read(true).write(true).open(control).ok()?;
        let mut disk = Self { control, below, path: PathBuf::new(), broken: 0..0 };
        let _ = disk.call(REMOVE, 0, &[]);
        let number = disk.call(CREATE, 0, &[]).ok()?;
        disk.path = format!("/dev/dm-{}", number & 0xff).into();
        disk.fail(0..0).ok()?;
        Some(disk)
    }

    /// Makes a part fail, in whole sectors; an empty one: none.
    pub(crate) fn fail(&mut self, broken: Range<usize>) -> Result<(), String> {
        let mut targets = Vec::new();
        let mut part = |range: Range<usize>, works: bool| {
            if !range.is_empty() {
                let first = range.start / SECTOR;
                let arguments =
                    if works { format!("{} {first}", self.below) } else { String::new() };
                targets.push(Target {
                    start: first as u64,
                    length: (range.len() / SECTOR) as u64,
                    status: 0,
                    next: size_of::<Target>() as u32,
                    kind: padded(if works { b"linear" } else { b"error" }),
                    arguments: padded(arguments.as_bytes()),
                });
            }
        };
        part(0..broken.start, true);
        part(broken.clone(), false);
        part(broken.end..SIZE, true);
        let failed = |errno| format!("the device mapper: {errno}");
        self.call(LOAD, 0, &targets).map_err(failed)?;
        self.call(SUSPEND, SKIP_LOCKFS, &[]).map_err(failed)?;
        self.broken = broken;
        Ok(())
    }

    fn call(&self, request: u64, flags: u32, targets: &[Target]) -> std::io::Result<u64> {
        let none =
            Target { start: 0, length: 0, status: 0, next: 0, kind: [0; 16], arguments: [0; 64] };
        let mut argument = Argument {
            head: Head {
                version: [4, 0, 0],
                data_size: size_of::<Argument>() as u32,
                data_start: size_of::<Head>() as u32,
                target_count: targets.len() as u32,
                open_count: 0,
                flags,
                event_nr: 0,
                padding: 0,
                dev: 0,
                name: padded(NAME),
                uuid: [0; 129],
                data: [0; 7],
            },
            targets: [none; 3],
        };
        argument.targets[..targets.len()].copy_from_slice(targets);
        // SAFETY: the call reads and writes a `struct dm_ioctl` of `data_size` bytes, which
        // `Argument` is.
        let ret = unsafe {
            libc::ioctl(self.control.as_raw_fd(), request, std::ptr::from_mut(&mut argument))
        };
        if ret < 0 { Err(std::io::Error::last_os_error()) } else { Ok(argument.head.dev) }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = self.call(REMOVE, 0, &[]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_the_kernels() {
        assert_eq!(size_of::<Head>(), 312);
        assert_eq!(std::mem::offset_of!(Target, arguments), 40);
        assert_eq!(CREATE, 0xc138_fd03);
    }
}
