// SPDX-License-Identifier: MIT OR Apache-2.0
//! Trees of files in place of sysfs, for tests.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// The transceiver of an AD9361, with values of a Pluto.
pub(crate) const PHY: &[(&str, &str)] = &[
    ("name", "ad9361-phy\n"),
    ("dev", "254:0\n"),
    ("uevent", "MAJOR=254\n"),
    ("ensm_mode", "fdd\n"),
    ("sampling_clock", "1\n"),
    ("in_temp0_input", "ro:35600\n"),
    ("in_voltage0_gain_control_mode", "slow_attack\n"),
    ("in_voltage1_gain_control_mode", "slow_attack\n"),
    ("in_voltage_gain_control_mode_available", "manual fast_attack slow_attack hybrid\n"),
    ("in_voltage0_hardwaregain", "71.000000 dB\n"),
    ("in_voltage0_hardwaregain_available", "[-3 1 71]\n"),
    ("in_voltage0_rssi", "ro:113.75 dB\n"),
    ("in_voltage2_sampling_frequency", "1\n"),
    ("in_voltage_rf_bandwidth", "18000000\n"),
    ("in_voltage_rf_bandwidth_available", "[200000 1 56000000]\n"),
    ("in_voltage_sampling_frequency", "30720000\n"),
    ("in_voltage_sampling_frequency_available", "[2083333 1 61440000]\n"),
    ("out_voltage0_hardwaregain", "-10.000000 dB\n"),
    ("out_voltage0_hardwaregain_available", "[-89.750000 0.250000 0.000000]\n"),
    ("out_altvoltage0_RX_LO_external", "0\n"),
    ("out_altvoltage0_RX_LO_frequency", "2400000000\n"),
    ("out_altvoltage0_RX_LO_frequency_available", "[70000000 1 6000000000]\n"),
    ("out_altvoltage0_RX_LO_powerdown", "0\n"),
    ("out_altvoltage0_RX_LO_fastlock_save", "wo:"),
    ("out_altvoltage1_TX_LO_frequency", "2450000000\n"),
    ("out_altvoltage1_TX_LO_frequency_available", "[46875001 1 6000000000]\n"),
    ("out_altvoltage2_frequency", "10000000\n"),
    ("out_altvoltage2_label", "Aux\n"),
];

/// A folder with devices.
pub(crate) struct Fake(tempfile::TempDir);

impl Fake {
    /// A tree with one device.
    pub(crate) fn new(number: u32, files: &[(&str, &str)]) -> Self {
        let fake = Self(tempfile::tempdir().expect("a folder"));
        fake.add(&format!("iio:device{number}"), files);
        fake
    }

    /// Adds a device or a trigger. A value that begins with `ro:` or `wo:` is that of an
    /// attribute that can only be read or written.
    pub(crate) fn add(&self, id: &str, files: &[(&str, &str)]) {
        for (name, text) in files {
            let path = self.root().join(id).join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
            let (mode, text) = match text.split_once(':') {
                Some(("ro", text)) => (0o444, text),
                Some(("wo", text)) => (0o200, text),
                _ => (0o644, *text),
            };
            fs::write(&path, text).expect("written");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("a mode");
        }
    }

    pub(crate) fn root(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn folder(&self, number: u32) -> PathBuf {
        self.root().join(format!("iio:device{number}"))
    }
}
