// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine's memory, and the files that are loaded into it.

use std::path::Path;

use dmabuf_dio::probe::available_memory;
use dmabuf_dio_terminal::exit::Failure;
use dmabuf_dio_terminal::signals;
use dmabuf_dio_terminal::size::show_size;

use crate::buffer::mapping::{Mapping, Pages};
use crate::disk::DiskFile;
use crate::outcome::{Result, Status, Trouble};
use crate::pattern::Pattern;

/// Memory left free.
const RESERVE: u64 = 64 << 20;
/// Memory is touched in pieces of this size, between which interruption is checked for.
const PIECE: u64 = 256 << 20;

/// Writes so many files of that size, for ways that need so much memory; or says why there are none. With an
/// `ending` they have names.
pub(crate) fn prepare(
    dir: &Path,
    ending: Option<&str>,
    (count, bytes): (u64, u64),
    memory: u64,
    content: impl Fn(u64) -> Pattern,
) -> Result<Result<Vec<DiskFile>>, Failure> {
    let files = lack_of_memory(memory).and_then(|()| {
        let files = DiskFile::create_all(dir, ending, count, bytes, content);
        files.map_err(|failure| Trouble::new(Status::Unavailable, failure.what()))
    });
    Failure::if_interrupted()?;
    if files.is_ok() {
        touch_memory(memory);
    }
    Ok(files)
}

/// Fails if buffers of `wanted` bytes do not fit into the available memory: allocating them would
/// invoke the OOM killer.
pub(crate) fn lack_of_memory(wanted: u64) -> Result<()> {
    match available_memory() {
        Some(available) if wanted.saturating_add(RESERVE) > available => {
            let [wanted, available, reserve] = [wanted, available, RESERVE].map(show_size);
            let what = format!("{wanted} do not fit into memory: {available} are available");
            Err(Trouble::new(
                Status::Unavailable,
                format!("{what}, of which {reserve} are kept free"),
            ))
        }
        _ => Ok(()),
    }
}

/// Touches this much memory, or all there is. In a virtual machine the first touch can take seconds
/// per GiB, and memory that was free for a while may have to be touched again.
pub(crate) fn touch_memory(len: u64) {
    // Some of what is available only looks so.
    let spare =
        available_memory().map_or(0, |available| (available / 8 * 7).saturating_sub(RESERVE));
    let len = len.min(spare);
    let Ok(mut mapping) = Mapping::anonymous(len, Pages::Huge) else { return };
    for at in (0..len).step_by(PIECE as usize) {
        // Errors here surface in the measurement.
        if signals::caught().is_some() || mapping.populate(at, PIECE.min(len - at)).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lack_of_memory_is_reported() {
        assert!(lack_of_memory(1 << 60).expect_err("too much").reason.contains("1048576 TiB"));
        assert_eq!(lack_of_memory(4096), Ok(()));
    }
}
