// SPDX-License-Identifier: MIT OR Apache-2.0
//! The USB host that receives samples.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dmabuf_dio::CancelToken;
use dmabuf_dio_stream::Function;
use rustix::io::Errno as Os;

use crate::outcome::Trouble;

/// Attributes of the host of `kernel/sim/usb_sink`.
const HOST: &str = "/sys/bus/platform/devices/usb_sink";
/// The time limit for a host.
const PATIENCE: Duration = Duration::from_secs(10);

/// A function that a host has enabled.
#[derive(Debug)]
pub(crate) struct Usb {
    function: Function,
}

impl Usb {
    pub(crate) fn open(folder: Option<&Path>) -> Result<Self, Trouble> {
        let what = "a USB function";
        let Some(folder) = folder else {
            return Err(Trouble::unavailable(what, Os::NODEV, "no --usb FOLDER"));
        };
        let mut function = Function::new(folder).map_err(Trouble::of_stream)?;
        let token = CancelToken::new();
        let over = token.clone();
        std::thread::spawn(move || {
            std::thread::sleep(PATIENCE);
            over.cancel();
        });
        if function.wait(&token).map_err(Trouble::of_stream)? {
            Ok(Self { function })
        } else {
            Err(Trouble::unavailable(what, Os::NODEV, "no host enables it"))
        }
    }

    pub(crate) fn endpoint(&self) -> PathBuf {
        self.function.endpoint()
    }

    /// Whether the simulated host checks what it receives.
    pub(crate) fn set_sparse(sparse: bool) {
        let _ = fs::write(format!("{HOST}/sparse"), if sparse { "1" } else { "0" });
    }

    /// Wrong frames counted by that host.
    pub(crate) fn wrong_frames() -> Option<u64> {
        fs::read_to_string(format!("{HOST}/wrong_frames")).ok()?.trim().parse().ok()
    }
}
