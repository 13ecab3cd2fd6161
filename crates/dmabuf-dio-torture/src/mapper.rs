// SPDX-License-Identifier: MIT OR Apache-2.0
//! Devices of the device mapper.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;

/// Of a table, in bytes.
pub(crate) const SECTOR: u64 = 512;

/// `struct dm_ioctl` of `linux/dm-ioctl.h`: its size, and where some fields are.
const HEAD: usize = 312;
const DATA_SIZE: usize = 12;
const DATA_START: usize = 16;
const TARGET_COUNT: usize = 20;
const FLAGS: usize = 28;
const DEV: usize = 40;
const NAME: usize = 48;
/// `struct dm_target_spec`
const SPEC: usize = 40;

/// `_IOWR(0xfd, number, struct dm_ioctl)`
const fn request(number: u64) -> u64 {
    (3 << 30) | ((HEAD as u64) << 16) | (0xfd << 8) | number
}

const CREATE: u64 = request(3);
const REMOVE: u64 = request(4);
const SUSPEND: u64 = request(6);
const LOAD: u64 = request(9);
const MESSAGE: u64 = request(14);
/// Until the next call without it, requests wait.
const SUSPENDED: u32 = 1 << 1;
/// Neither waits for a file system nor freezes it.
const SKIP_LOCKFS: u32 = 1 << 10;

/// A line of a table.
pub(crate) struct Target {
    /// In sectors
    pub(crate) start: u64,
    /// In sectors
    pub(crate) length: u64,
    pub(crate) kind: &'static str,
    pub(crate) arguments: String,
}

impl Target {
    fn encode(&self) -> Vec<u8> {
        let mut spec = vec![0; (SPEC + self.arguments.len() + 1).next_multiple_of(8)];
        spec[..8].copy_from_slice(&self.start.to_ne_bytes());
        spec[8..16].copy_from_slice(&self.length.to_ne_bytes());
        let next = (spec.len() as u32).to_ne_bytes();
        spec[20..24].copy_from_slice(&next);
        spec[24..24 + self.kind.len()].copy_from_slice(self.kind.as_bytes());
        spec[SPEC..SPEC + self.arguments.len()].copy_from_slice(self.arguments.as_bytes());
        spec
    }
}

/// A device, which is removed when it is dropped; its users close it first.
pub(crate) struct Mapped {
    control: File,
    name: String,
    /// Its node.
    pub(crate) path: PathBuf,
}

impl Mapped {
    /// A device without a table. One of that name that somebody left is removed.
    pub(crate) fn create(name: &str) -> Result<Self, String> {
        let control = "/dev/mapper/control";
        if !std::fs::exists(control).unwrap_or(false) {
            let _ = std::process::Command::new("modprobe").args(["-q", "dm_mod"]).status();
        }
        let control = File::options().read(true).write(true).open(control);
        let control = control.map_err(|error| format!("the device mapper: {error}"))?;
        let mut device = Self { control, name: name.into(), path: PathBuf::new() };
        let _ = device.call(REMOVE, 0, 0, &[]);
        let number = device.call(CREATE, 0, 0, &[])?;
        device.path = format!("/dev/dm-{}", number & 0xff).into();
        Ok(device)
    }

    /// Gives the device a table, or another one.
    pub(crate) fn load(&self, targets: &[Target]) -> Result<(), String> {
        let specs: Vec<u8> = targets.iter().flat_map(Target::encode).collect();
        self.call(LOAD, 0, targets.len() as u32, &specs)?;
        self.suspend(false)
    }

    /// Makes all requests wait, or go on, with the new table if there is one.
    pub(crate) fn suspend(&self, suspend: bool) -> Result<(), String> {
        let flags = SKIP_LOCKFS | if suspend { SUSPENDED } else { 0 };
        self.call(SUSPEND, flags, 0, &[]).map(|_| ())
    }

    /// A message to the target at the start of the device.
    pub(crate) fn message(&self, text: &str) -> Result<(), String> {
        let mut data = vec![0; 8];
        data.extend_from_slice(text.as_bytes());
        data.push(0);
        self.call(MESSAGE, 0, 0, &data).map(|_| ())
    }

    /// Returns the device's number.
    fn call(&self, request: u64, flags: u32, targets: u32, data: &[u8]) -> Result<u64, String> {
        let mut argument = vec![0; HEAD + data.len().max(64)];
        let size = argument.len() as u32;
        argument[..4].copy_from_slice(&4_u32.to_ne_bytes());
        let numbers =
            [(DATA_SIZE, size), (DATA_START, HEAD as u32), (TARGET_COUNT, targets), (FLAGS, flags)];
        for (place, number) in numbers {
            argument[place..place + 4].copy_from_slice(&number.to_ne_bytes());
        }
        argument[NAME..NAME + self.name.len()].copy_from_slice(self.name.as_bytes());
        argument[HEAD..HEAD + data.len()].copy_from_slice(data);
        // SAFETY: the call reads and writes a `struct dm_ioctl` of `data_size` bytes, which
        // `argument` has.
        let ret = unsafe { libc::ioctl(self.control.as_raw_fd(), request, argument.as_mut_ptr()) };
        if ret < 0 {
            let (error, number) = (std::io::Error::last_os_error(), request & 0xff);
            return Err(format!("the device mapper, call {number} for {}: {error}", self.name));
        }
        let mut number = [0; 8];
        number.copy_from_slice(&argument[DEV..DEV + 8]);
        Ok(u64::from_ne_bytes(number))
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let _ = self.call(REMOVE, 0, 0, &[]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_the_kernels() {
        assert_eq!(CREATE, 0xc138_fd03);
        let target = Target { start: 1, length: 2, kind: "linear", arguments: "/dev/x 0".into() };
        let spec = target.encode();
        assert_eq!((spec.len(), spec[0], spec[8], spec[20]), (56, 1, 2, 56));
        assert_eq!(&spec[24..31], b"linear\0");
        assert_eq!(&spec[40..49], b"/dev/x 0\0");
    }
}
