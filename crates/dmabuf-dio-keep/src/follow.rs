// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links in the folder of a source. Whoever may write the folder could lead the load to files of others that only
//! the user who keeps may read.

use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::{Errno, Result};

/// As many links as the kernel follows.
const MOST_LINKS: usize = 40;

/// What a link in a folder leads to, step by step, so that nobody can exchange a step in between. `None` if a link on
/// the way belongs neither to root, nor to this user, nor to the owner of what it leads to.
pub(crate) fn target(folder: BorrowedFd<'_>, name: &Path) -> Result<Option<Stat>> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut at = rustix::fs::openat(folder, ".", flags, Mode::empty())?;
    let mut left = vec![name.to_owned()];
    let mut owners = Vec::new();
    while let Some(step) = left.pop() {
        let entry = rustix::fs::openat(&at, &step, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&entry)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
            at = entry;
            continue;
        }
        owners.push(stat.st_uid);
        if owners.len() > MOST_LINKS {
            return Err(Errno::LOOP);
        }
        let text = rustix::fs::readlinkat(&entry, "", Vec::new())?.into_bytes();
        let text = PathBuf::from(std::ffi::OsString::from_vec(text));
        left.extend(text.components().rev().map(|part| PathBuf::from(part.as_os_str())));
    }
    let stat = rustix::fs::fstat(&at)?;
    let user = rustix::process::geteuid().as_raw();
    let is_trusted = |owner: &u32| [0, user, stat.st_uid].contains(owner);
    Ok(owners.iter().all(is_trusted).then_some(stat))
}
