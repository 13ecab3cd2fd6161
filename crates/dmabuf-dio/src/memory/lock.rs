// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that is kept from being swapped out: mlock(2).

use std::os::fd::BorrowedFd;

use rustix::mm::{MapFlags, ProtFlags};
use rustix::process::Resource;

use super::page::{huge_page, page_size};
use super::{Mapping, last_errno};
use crate::errno::IntoErrno;
use crate::error::{Error, Result};
use crate::limit;

/// Fails if this process may not lock `len` bytes more, before a file is read into memory that could then not
/// be locked.
///
/// # Errors
///
/// [`Error::Lock`].
pub(crate) fn check(len: u64) -> Result<()> {
    // Where there is no room for it, the memory itself will say so.
    let Ok(trial) = Mapping::reserve(len, ProtFlags::empty(), MapFlags::NORESERVE) else {
        return Ok(());
    };
    // SAFETY: the memory is mapped, and none of its pages are touched.
    let result =
        unsafe { libc::syscall(libc::SYS_mlock2, trial.as_ptr(), trial.len, libc::MLOCK_ONFAULT) };
    match (result, last_errno()) {
        // Where this call is blocked, mlock(2) may not be.
        (0, _) | (_, rustix::io::Errno::NOSYS) => Ok(()),
        // The kernel refuses it only if nothing may be locked: `can_do_mlock()` in mm/mlock.c.
        (_, rustix::io::Errno::PERM) if limit::current(Resource::Memlock) != Some(0) => Ok(()),
        (_, errno) => Err(error(len, errno)),
    }
}

impl Mapping {
    /// Maps the first `len` bytes of a memfd and locks them in memory as long as the mapping lives.
    ///
    /// The mapping is private, so that it does not count as one for writing, which sealing would refuse.
    /// It has the memfd's own pages, because it is never written.
    ///
    /// # Errors
    ///
    /// [`Error::Lock`]; [`Error::Buffer`].
    pub(crate) fn locked(fd: BorrowedFd<'_>, len: u64) -> Result<Self> {
        let mapping = Self::of_file(fd, len, len, ProtFlags::READ, MapFlags::PRIVATE)?;
        mapping.lock()?;
        Ok(mapping)
    }

    /// Locks the pages in memory as long as the mapping lives.
    ///
    /// # Errors
    ///
    /// [`Error::Lock`].
    pub(crate) fn lock(&self) -> Result<()> {
        // A part of the last huge page would split it, but the limit may allow no more.
        let unit = if self.len() < huge_page() { page_size() } else { huge_page() };
        let whole = (self.len.next_multiple_of(unit as usize)).min(self.whole());
        // SAFETY: the range is mapped, and keeps its content.
        let lock = |len| unsafe { libc::mlock(self.as_ptr().cast(), len) } == 0;
        if lock(whole) || lock(self.len) { Ok(()) } else { Err(error(self.len(), last_errno())) }
    }
}

fn error(length: u64, errno: rustix::io::Errno) -> Error {
    let limit = limit::current(Resource::Memlock);
    Error::Lock { length, limit, errno: errno.into_errno() }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::super::tests::flags;
    use super::*;
    use crate::buffer::shared::Shared;

    #[test]
    fn mapped_memory_is_locked() {
        let len = 3 * page_size();
        if let Err(error) = check(2 * len) {
            return println!("skipped: {error}");
        }
        let is_locked = |mapping: &Mapping| Some(flags(mapping)?.contains(" lo"));
        let private = Mapping::mapped(len).expect("memory");
        private.fill(0, len, 1).expect("filled");
        let Some(false) = is_locked(&private) else { return println!("skipped: no smaps") };
        private.lock().expect("locked");
        assert_eq!(is_locked(&private), Some(true));

        let mut memfd = Shared::memfd(len).expect("a memfd");
        let mapping = Mapping::locked(memfd.as_fd(), len).expect("locked");
        assert_eq!(is_locked(&mapping), Some(true));
        memfd.seal().expect("the mapping is not one for writing");
    }

    #[test]
    fn what_cannot_be_locked_names_the_limit() {
        let error = error(4096, rustix::io::Errno::NOMEM);
        let limit = limit::current(Resource::Memlock);
        let Error::Lock { length: 4096, limit: told, .. } = &error else { panic!("{error}") };
        assert_eq!(*told, limit);
        let error = Error::Lock { length: 1, limit: Some(65_536), errno: crate::Errno::NOMEM };
        assert!(error.to_string().contains("65536"), "{error}");
        assert!(error.hint().to_string().contains("ulimit -l"), "{}", error.hint());
    }
}
