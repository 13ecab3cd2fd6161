// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file that every process has, to try backends on: its own executable.

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};

use crate::backend::{Backend, Refusal};
use crate::buffer::shared::Shared;
use crate::error::{Error, Result};
use crate::memory::page::page_size;

const PATH: &str = "/proc/self/exe";

/// The start of a file, at most a page.
#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) fd: OwnedFd,
    pub(crate) content: Vec<u8>,
}

impl Sample {
    /// Opens the file for `backend`. The refusal must say that the file, not the backend, is at
    /// fault.
    pub(crate) fn open(backend: Backend) -> Result<Self, Refusal> {
        let refuse = |errno: rustix::io::Errno| {
            backend
                .refuse(format!("cannot be tested: {PATH} is not readable"))
                .errno(errno)
                .remedy("mount /proc, and give this user read permission on the program")
        };
        let fd = rustix::fs::open(PATH, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(refuse)?;
        let mut content = vec![0; page_size() as usize];
        let len = rustix::io::pread(&fd, &mut content, 0).map_err(refuse)?;
        content.truncate(len);
        Ok(Self { fd, content })
    }

    /// Whether a buffer starts with the content.
    pub(crate) fn is_in(&self, buf: &Shared) -> Result<bool, Error> {
        let mut found = vec![0; self.content.len()];
        let view = buf.map()?;
        view.read_at(0, &mut found)?;
        view.finish()?;
        Ok(found == self.content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_content_is_recognized() {
        let sample = Sample::open(Backend::Heap).expect("a program that can be read");
        assert!(sample.content.starts_with(b"\x7fELF"));
        let mut buf = Shared::memfd(sample.content.len() as u64).expect("a memfd");
        assert!(!sample.is_in(&buf).expect("compare"));
        buf.map_mut().expect("map").write_at(0, &sample.content).expect("write");
        assert!(sample.is_in(&buf).expect("compare"));
    }
}
