// SPDX-License-Identifier: MIT OR Apache-2.0
//! The losses that a device reports, by a counter of its driver or by a status register in which
//! hardware notes lost samples. The register is in cores of Analog Devices. Root can read it through
//! debugfs, as `iio_adi_xflow_check` of libiio does.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::device::{Counter, Device};
use crate::gaps::Reading;

/// The devices in debugfs.
const DEBUG: &str = "/sys/kernel/debug/iio";
/// `REG_UI_STATUS` of a core.
const STATUS: u32 = 0x88;
/// This bit selects the registers of the core, not of the converter, in drivers that have both in
/// one file.
const CORE: u32 = 0x8000_0000;
/// Bits of the register, cleared by writing them: an ADC had nowhere to put samples, a DAC had none.
const OVERFLOW: u32 = 4;
const UNDERFLOW: u32 = 1;

/// The way in which a device reports its losses.
#[derive(Debug)]
pub(super) struct Losses {
    counter: Counter,
    status: Option<Status>,
}

impl Losses {
    pub(super) fn of(device: &Device, output: bool) -> Self {
        Self { counter: device.counter("lost_frames"), status: Status::of(device, output) }
    }

    pub(super) fn are_told(&self) -> bool {
        self.status.is_some() || self.counter.read().is_some()
    }

    pub(super) fn read(&self) -> Reading {
        match (self.counter.read(), &self.status) {
            (Some(lost), _) => Reading::Count(lost),
            (None, Some(status)) => status.take().map_or(Reading::Nothing, Reading::Noted),
            (None, None) => Reading::Nothing,
        }
    }

    /// Forgets what the hardware noted until now. An overflow before the first block is no loss.
    pub(super) fn clear(&self) {
        if let Some(status) = &self.status {
            status.clear();
        }
    }
}

/// The register of a device, and the bit that tells of its losses.
#[derive(Debug)]
struct Status {
    registers: File,
    address: u32,
    bit: u32,
}

impl Status {
    /// `None` if the device has no such register, or this user cannot use it.
    fn of(device: &Device, output: bool) -> Option<Self> {
        Self::of_in(Path::new(DEBUG), device, output)
    }

    fn of_in(debug: &Path, device: &Device, output: bool) -> Option<Self> {
        let folder = debug.join(device.id());
        let (path, address) = if is_core(&folder) {
            (folder.join("backend0/direct_reg_access"), STATUS)
        } else if device.is_compatible("adi,axi-") {
            (folder.join("direct_reg_access"), CORE | STATUS)
        } else {
            return None;
        };
        let registers = File::options().read(true).write(true).open(path).ok()?;
        let bit = if output { UNDERFLOW } else { OVERFLOW };
        let status = Self { registers, address, bit };
        status.read().ok().map(|_| status)
    }

    fn read(&self) -> io::Result<u32> {
        self.registers.write_all_at(format!("{:#x}", self.address).as_bytes(), 0)?;
        let mut text = [0; 24];
        let length = self.registers.read_at(&mut text, 0)?;
        let text = std::str::from_utf8(&text[..length]).unwrap_or_default().trim();
        let digits = text.strip_prefix("0x").unwrap_or_default();
        u32::from_str_radix(digits, 16).map_err(|_| io::ErrorKind::InvalidData.into())
    }

    /// Forgets losses up to now.
    fn clear(&self) {
        let clear = format!("{:#x} {:#x}", self.address, self.bit);
        let _ = self.registers.write_all_at(clear.as_bytes(), 0);
    }

    /// Whether anything was lost since the last call; `None` if that cannot be read any more.
    fn take(&self) -> Option<bool> {
        let lost = self.read().ok()? & self.bit != 0;
        if lost {
            self.clear();
        }
        Some(lost)
    }
}

/// Whether the backend of a device is a core of Analog Devices: "axi-adc", "axi-dac".
fn is_core(folder: &Path) -> bool {
    fs::read_to_string(folder.join("backend0/name")).is_ok_and(|name| name.starts_with("axi-"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iio::sysfs::Fake;

    #[test]
    fn status_touches_only_registers_of_a_known_core() {
        let fake = Fake::new(0, &[("name", "adc\n")]);
        let device = Device::find_in(fake.root(), "adc").expect("found");
        let debug = tempfile::tempdir().expect("a folder");
        let folder = debug.path().join(device.id());
        let add = |name: &str, text: &str| {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        };
        let is_there = || Status::of_in(debug.path(), &device, false).is_some();
        assert!(!is_there());
        add("direct_reg_access", "0x4\n");
        add("backend0/direct_reg_access", "0x4\n");
        add("backend0/name", "sd-modulator\n");
        assert!(!is_there(), "another device's registers may do anything when they are read");
        let text = fs::read_to_string(folder.join("direct_reg_access")).expect("read");
        assert_eq!(text, "0x4\n", "untouched");
        // The test file keeps the written address, which is more than an overflow's bit.
        add("backend0/name", "axi-adc\n");
        assert!(is_there());
        let text = fs::read_to_string(folder.join("backend0/direct_reg_access")).expect("read");
        assert_eq!(text, "0x88", "only read");
        fake.add("iio:device0/of_node", &[("compatible", "adi,axi-ad9361-6.00.a\0")]);
        add("backend0/name", "x");
        let _ = is_there();
        let text = fs::read_to_string(folder.join("direct_reg_access")).expect("read");
        assert!(text.starts_with("0x80000088"), "{text}");
    }
}
