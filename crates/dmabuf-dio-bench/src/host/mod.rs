// SPDX-License-Identifier: MIT OR Apache-2.0
//! Facts about the machine, settings of its kernel, and the file to load.

pub(crate) mod facts;
pub(crate) mod setting;

use dmabuf_dio_terminal::exit::Failure;

use crate::args::CommonArgs;
use crate::buffer::touch_memory;
use crate::disk::DiskFile;
use crate::pattern::Pattern;

/// Writes a file of that size, for ways that need so much memory; or says why there is none.
pub(crate) fn prepare(
    args: &CommonArgs,
    bytes: u64,
    memory: u64,
    content: Pattern,
) -> Result<Result<DiskFile, String>, Failure> {
    if let Some(lack) = facts::lack_of_memory(memory) {
        return Ok(Err(lack));
    }
    let disk = match DiskFile::create(&args.dir, bytes) {
        Err(failure) => return Ok(Err(failure.what().to_owned())),
        Ok(disk) => disk,
    };
    disk.write(&content)?;
    touch_memory(bytes);
    Ok(Ok(disk))
}
