// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opens regular files, without blocking on FIFOs and devices.

use std::fs::{File, OpenOptions};
use std::io::{BufReader, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::{Advice, OFlags, fadvise, fcntl_getfl, fcntl_setfl};

use crate::error::{Error, Result};
use crate::header::{self, Header, HeaderError};
use crate::malformed::Malformed;

/// Opens a regular file for reading and finds its length.
pub(crate) fn open(path: &Path) -> Result<(File, u64)> {
    let error = |source| Error::Open { path: path.to_owned(), source };
    // A FIFO would block until somebody writes it.
    let nonblocking = OFlags::NONBLOCK.bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(nonblocking).open(path).map_err(error)?;
    let found = file.metadata().map_err(error)?;
    if !found.is_file() {
        return Err(Error::NotAFile { path: path.to_owned() });
    }
    // With the flag io_uring would fail instead of waiting.
    fcntl_getfl(&file)
        .and_then(|flags| fcntl_setfl(&file, flags - OFlags::NONBLOCK))
        .map_err(|errno| error(errno.into()))?;
    Ok((file, found.len()))
}

/// Reads the header of an open file of `len` bytes. Moves the file's position.
pub(crate) fn header(path: &Path, file: &File, len: u64) -> Result<Header> {
    // Read-ahead would read tensors as well, which are not loaded through the page cache.
    let _ = fadvise(file, 0, None, Advice::Random);
    let header = header::parse(BufReader::with_capacity(1 << 18, file), len);
    let _ = fadvise(file, 0, None, Advice::Normal);
    header.map_err(|error| match error {
        HeaderError::Malformed(reason) => malformed(path, reason),
        HeaderError::Read(source) => Error::Read { path: path.to_owned(), source },
    })
}

/// Reads a file of at most `limit` bytes.
pub(crate) fn read(path: &Path, limit: u64) -> Result<Vec<u8>> {
    let (file, len) = open(path)?;
    let mut bytes = Vec::new();
    // It may grow while it is read.
    let read = file.take(limit + 1).read_to_end(&mut bytes);
    read.map_err(|source| Error::Read { path: path.to_owned(), source })?;
    if bytes.len() as u64 > limit {
        let what = "an index of bytes:";
        let value = len.max(limit + 1);
        return Err(malformed(path, Malformed::TooLarge { what, value, limit }));
    }
    Ok(bytes)
}

pub(crate) fn malformed(path: &Path, reason: Malformed) -> Error {
    Error::Malformed { path: path.to_owned(), reason }
}
