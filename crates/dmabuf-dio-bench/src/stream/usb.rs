// SPDX-License-Identifier: MIT OR Apache-2.0
//! The USB host that receives samples.

use std::fs;
use std::path::Path;
use std::time::Duration;

use dmabuf_dio::CancelToken;
use dmabuf_dio_stream::Function;
use rustix::io::Errno as Os;

use crate::outcome::{Result, Trouble};

/// Attributes of the host of `kernel/sim/usb_sink`.
const HOST: &str = "/sys/bus/platform/devices/usb_sink";
/// The time limit for a host.
const PATIENCE: Duration = Duration::from_secs(10);

/// A function that a host has enabled.
pub(super) fn open(folder: Option<&Path>) -> Result<Function> {
    let unavailable = |why| Trouble::unavailable("a USB function", Os::NODEV, why);
    let mut function = Function::new(folder.ok_or_else(|| unavailable("no --usb FOLDER"))?)?;
    let token = CancelToken::new();
    let over = token.clone();
    std::thread::spawn(move || {
        std::thread::sleep(PATIENCE);
        over.cancel();
    });
    let enabled = function.wait(&token)?;
    enabled.then_some(function).ok_or_else(|| unavailable("no host enables it"))
}

/// Whether the simulated host checks what it receives.
pub(super) fn set_sparse(sparse: bool) {
    let _ = fs::write(format!("{HOST}/sparse"), if sparse { "1" } else { "0" });
}

/// Wrong frames counted by that host.
pub(super) fn wrong_frames() -> Option<u64> {
    fs::read_to_string(format!("{HOST}/wrong_frames")).ok()?.trim().parse().ok()
}
