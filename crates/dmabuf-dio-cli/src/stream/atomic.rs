// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes descriptions atomically.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;
use serde::Serialize;

use crate::show;

/// Replaces a description atomically.
pub(crate) fn replace(path: &Path, value: &impl Serialize) -> io::Result<()> {
    replace_text(path, &show::json(value)?)
}

/// The same for a text.
pub(crate) fn replace_text(path: &Path, text: &str) -> io::Result<()> {
    put(path, ".partial", text, |partial| fs::rename(partial, path))
}

/// Writes a description that does not exist yet.
pub(crate) fn create(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let text = show::json(value)?;
    // Another process may be writing the same file.
    let end = format!(".{}.partial", std::process::id());
    put(path, &end, &text, |partial| {
        match rustix::fs::renameat_with(CWD, partial, CWD, path, RenameFlags::NOREPLACE) {
            // Not every file system supports this.
            Err(Errno::INVAL | Errno::NOSYS) => fs::rename(partial, path),
            result => Ok(result?),
        }
    })
}

/// Writes a text to a temporary file beside `path`, whose name ends in `end`. `name` then gives it
/// its final name.
fn put(
    path: &Path,
    end: &str,
    text: &str,
    name: impl FnOnce(&Path) -> io::Result<()>,
) -> io::Result<()> {
    let mut partial = path.as_os_str().to_owned();
    partial.push(end);
    let partial = PathBuf::from(partial);
    let written = fs::write(&partial, text)
        .and_then(|()| fs::File::open(&partial)?.sync_all())
        .and_then(|()| name(&partial));
    if written.is_err() {
        let _ = fs::remove_file(&partial);
    }
    written
}
