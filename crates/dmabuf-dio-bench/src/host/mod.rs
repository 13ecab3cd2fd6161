// SPDX-License-Identifier: MIT OR Apache-2.0
//! Facts about the machine, settings of its kernel, and the files to load.

pub(crate) mod facts;
pub(crate) mod setting;

use dmabuf_dio_terminal::exit::Failure;

use crate::args::CommonArgs;
use crate::buffer::touch_memory;
use crate::disk::DiskFile;
use crate::outcome::{Status, Trouble};
use crate::pattern::Pattern;

/// Writes so many files of that size, for ways that need so much memory; or says why there are none.
pub(crate) fn prepare(
    args: &CommonArgs,
    bytes: u64,
    count: u64,
    memory: u64,
    content: Pattern,
) -> Result<Result<Vec<DiskFile>, Trouble>, Failure> {
    let left_out = |reason: &str| Ok(Err(Trouble::new(Status::Unavailable, reason)));
    if let Some(lack) = facts::lack_of_memory(memory) {
        return left_out(&lack);
    }
    let mut disks = Vec::new();
    for number in 0..count {
        // Those that are to come have to fit too.
        match DiskFile::create(&args.dir, bytes)
            .and_then(|disk| disk.with_room((count - number) * bytes))
        {
            Err(failure) => return left_out(failure.what()),
            Ok(disk) => disks.push(disk),
        }
        disks[number as usize].write(|bytes, at| content.fill(bytes, at))?;
    }
    touch_memory(memory);
    Ok(Ok(disks))
}
