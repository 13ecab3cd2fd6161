// SPDX-License-Identifier: MIT OR Apache-2.0
//! Contents that are no files of this machine, such as the objects of a store.
//!
//! This crate fetches nothing itself: `dmabuf-dio-remote` implements [`Content`] for object stores.
//! [`Loader::from_content`](crate::Loader::from_content) makes the buffer and lets the content fill it.

mod fill;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use self::fill::Fill;
use crate::backend::Backend;
use crate::control::{CancelToken, Control, Watch};
use crate::errno::Errno;
use crate::error::{Error, Result};
use crate::file::check_range;
use crate::memory::Mapping;

/// Bytes that are no file of this machine. Its length and its bytes do not change: where a store replaces the
/// object, [`read`](Self::read) fails.
pub trait Content: fmt::Debug + Send + Sync {
    /// What messages call it: a URL without secrets.
    fn name(&self) -> &Path;

    /// Its length in bytes.
    fn length(&self) -> u64;

    /// What its store calls this version of it, such as an `ETag`. Default, and `None`: nothing tells it from another.
    fn version(&self) -> Option<String> {
        None
    }

    /// Reads [`fill.length()`](Fill::length) bytes from byte `offset` on, writes all of them to `fill`, and counts
    /// them. Blocks. It may use any number of requests, threads and tries, and looks at
    /// [`fill.is_cancelled()`](Fill::is_cancelled) at least every 100 ms. The range lies within the length.
    ///
    /// # Errors
    ///
    /// [`Error::Content`]: what was written is discarded. [`Error::Cancelled`], from [`Fill::check`].
    fn read(&self, offset: u64, fill: &Fill<'_>) -> Result<Fetched>;
}

/// A folder of contents: all objects of a store whose names begin with a prefix.
pub trait Folder: fmt::Debug + Send + Sync {
    /// What messages call it.
    fn name(&self) -> &Path;

    /// The names of all contents, relative to the folder and with those in folders below, and their lengths in bytes,
    /// sorted by name. Blocks.
    ///
    /// # Errors
    ///
    /// [`Error::Content`].
    fn list(&self) -> Result<Vec<(PathBuf, u64)>>;

    /// Opens the content of that name. Blocks.
    ///
    /// # Errors
    ///
    /// [`Error::Content`].
    fn open(&self, name: &Path) -> Result<Arc<dyn Content>>;
}

/// What reading a range of a [`Content`] took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Fetched {
    /// Requests that were answered with bytes.
    pub requests: u64,
    /// Requests that were made again: for a range, or for the rest of one.
    pub retries: u64,
    /// Bytes that arrived, with those that were fetched again.
    pub bytes: u64,
}

impl Fetched {
    /// The sum of two.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            requests: self.requests + other.requests,
            retries: self.retries + other.retries,
            bytes: self.bytes + other.bytes,
        }
    }
}

/// Reads `length` bytes of a content from byte `offset` on: what is needed before a load, such as the header of a
/// model. Blocks; `cancel` stops it.
///
/// # Errors
///
/// As for [`Loader::load`](crate::Loader::load).
pub fn read(
    content: &dyn Content,
    offset: u64,
    length: u64,
    cancel: &CancelToken,
) -> Result<Vec<u8>> {
    check(content, offset, length)?;
    let control = Control { progress: None, cancel: cancel.clone() };
    let watch = Watch::start(&control, length);
    let mapping = Mapping::zeroed(length)?;
    fill_all(content, offset, &Fill::new(&mapping, 0, content.name(), &watch))?;
    mapping.to_vec(0, length)
}

/// Fails if the content does not have this range.
pub(crate) fn check(content: &dyn Content, offset: u64, length: u64) -> Result<()> {
    check_range(offset, length)?;
    let end = content.length();
    if offset + length <= end {
        return Ok(());
    }
    Err(Error::ShortFile { path: content.name().to_owned(), offset, length, end, done: 0 })
}

/// Contents are moved without a backend.
pub(crate) fn no_backend(backend: Backend) -> Error {
    let refusal = backend
        .refuse("it moves data between files and buffers, and this is no file")
        .remedy("leave the backend out");
    Error::Unavailable { asked: Some(backend), kind: None, refusals: vec![refusal] }
}

/// Lets the content fill memory, and checks that it counted every byte.
pub(crate) fn fill_all(content: &dyn Content, offset: u64, fill: &Fill<'_>) -> Result<Fetched> {
    fill.check()?;
    if fill.length() == 0 {
        return Ok(Fetched::default());
    }
    let fetched = content.read(offset, fill)?;
    fill.check()?;
    if fill.counted() == fill.length() {
        return Ok(fetched);
    }
    Err(Error::Content {
        name: content.name().to_owned(),
        offset,
        length: fill.length(),
        what: format!("its reader counted {} bytes", fill.counted()),
        errno: Errno::IO,
        remedy: "report this: the reader is at fault".into(),
    })
}
