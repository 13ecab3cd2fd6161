// SPDX-License-Identifier: MIT OR Apache-2.0
//! The heap flag's gather parameter, set temporarily.

use rustix::io::Errno as Os;

use crate::host::setting::Setting;
use crate::measure::outcome::{Trouble, os};

const READ_GATHER: &str = "/sys/module/dma_heap/parameters/read_gather";

/// Restores the parameter when it is dropped.
#[derive(Debug)]
pub(crate) struct ReadGather(#[expect(dead_code, reason = "held until it is restored")] Setting);

impl ReadGather {
    /// Sets the kernel's parameter.
    pub(crate) fn set(bytes: u64) -> Result<Self, Trouble> {
        Self::set_at(READ_GATHER, bytes)
    }

    fn set_at(path: &str, bytes: u64) -> Result<Self, Trouble> {
        let refuse = |error: std::io::Error| {
            let errno = os(&error);
            let why = match errno {
                Os::NOENT => "this kernel has no LOAD by heap flag; see kernel/series",
                Os::ACCESS | Os::PERM | Os::ROFS => "only root may set it: run as root",
                _ => return Trouble::failed(path, errno),
            };
            Trouble::unavailable(path, errno, why)
        };
        Setting::set(path, &bytes.to_string()).map(Self).map_err(refuse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::outcome::Status;

    #[test]
    fn read_gather_is_set_and_restored() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("read_gather");
        std::fs::write(&path, "134217728\n").expect("write");
        let read = || std::fs::read_to_string(&path).expect("read");
        let name = path.to_str().expect("text");
        let gather = ReadGather::set_at(name, 4096).expect("set");
        assert_eq!(read(), "4096");
        drop(gather);
        assert_eq!(read(), "134217728");
        let missing = folder.path().join("missing");
        let trouble = ReadGather::set_at(missing.to_str().expect("text"), 1).expect_err("no file");
        assert_eq!(trouble.status, Status::Unavailable);
        assert!(!missing.exists());
    }
}
