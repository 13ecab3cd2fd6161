// SPDX-License-Identifier: MIT OR Apache-2.0
//! Facts about the machine, settings of its kernel, and the files to load.

pub(crate) mod facts;
pub(crate) mod setting;

use std::path::Path;

use dmabuf_dio_terminal::exit::Failure;

use crate::buffer::touch_memory;
use crate::disk::DiskFile;
use crate::outcome::{Status, Trouble};
use crate::pattern::Pattern;

/// Writes so many files of that size, for ways that need so much memory; or says why there are none. With an
/// `ending` they have names.
pub(crate) fn prepare(
    dir: &Path,
    ending: Option<&str>,
    (count, bytes): (u64, u64),
    memory: u64,
    content: impl Fn(u64) -> Pattern,
) -> Result<Result<Vec<DiskFile>, Trouble>, Failure> {
    let files = match facts::lack_of_memory(memory) {
        Some(lack) => Err(lack),
        None => DiskFile::create_all(dir, ending, count, bytes, content)
            .map_err(|failure| failure.what().to_owned()),
    };
    Failure::if_interrupted()?;
    touch_memory(if files.is_ok() { memory } else { 0 });
    Ok(files.map_err(|reason| Trouble::new(Status::Unavailable, reason)))
}
