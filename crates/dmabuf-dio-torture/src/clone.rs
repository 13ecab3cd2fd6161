// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that share blocks.

use std::os::fd::AsRawFd as _;

use crate::pages::PAGE;
use crate::world::{DISK, Outcome, World};

/// `struct file_clone_range`
#[repr(C)]
struct CloneRange {
    from: i64,
    source: u64,
    length: u64,
    at: u64,
}

/// A range of a file gets the blocks of another file's, up to its end at most. File systems share
/// whole blocks only.
pub(crate) fn clone(
    world: &mut World<'_>,
    to: u64,
    from: u64,
    at: u64,
    source: u64,
    length: u64,
) -> Outcome {
    let (Some(target), Some(origin)) = (world.file(to), world.file(from)) else { return Ok(()) };
    if to == from || to == DISK || from == DISK {
        return Ok(());
    }
    let page = PAGE as u64;
    let (at, source) = (at / page * page, source / page * page);
    let mut bytes = origin.range(source, length).to_vec();
    let whole = bytes.len() / PAGE * PAGE;
    let ends = source + bytes.len() as u64 == origin.bytes.len() as u64;
    // A part of a block is the end of both files.
    if !ends || at + (bytes.len() as u64) < target.bytes.len() as u64 {
        bytes.truncate(whole);
    }
    if bytes.is_empty() {
        return Ok(());
    }
    let origin = i64::from(origin.plain.as_raw_fd());
    let range = CloneRange { from: origin, source, length: bytes.len() as u64, at };
    // `FICLONERANGE`: `_IOW(0x94, 13, struct file_clone_range)`
    let request = 0x4020_940d;
    // SAFETY: the call reads a `struct file_clone_range`, whose layout `CloneRange` has.
    if unsafe { libc::ioctl(target.plain.as_raw_fd(), request, &raw const range) } < 0 {
        let error = std::io::Error::last_os_error();
        return match error.raw_os_error() {
            // The encrypted ones are on a file system of their own.
            Some(libc::EOPNOTSUPP | libc::ENOTTY | libc::EXDEV) => Ok(()),
            _ => Err(format!("FICLONERANGE: {error}")),
        };
    }
    world.machine.did("FICLONERANGE");
    world.file_mut(to).into_iter().for_each(|file| file.note(at, &bytes));
    Ok(())
}
