// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file in a udmabuf by parallel direct reads: what was asked for in place of a heap flag.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno as Os;

use crate::buffer::mapping::{Mapping, collapse};
use crate::buffer::{Buffer, BufferKind, Maker, memfd};
use crate::outcome::{Lack, Result, failed, refused};

/// As in the heap flag.
const READERS: usize = 4;
const READ: usize = 8 << 20;
const NO_HUGE: Lack<'static> = (
    &[Os::AGAIN, Os::BUSY, Os::INVAL, Os::NOMEM],
    "a memfd gets no huge pages here: Linux 6.1, CONFIG_TRANSPARENT_HUGEPAGE",
);

/// Loads the first `len` bytes of the file. Also returns the mapping that was used.
pub(crate) fn load(file: &File, len: u64, huge: bool) -> Result<(Buffer, Mapping)> {
    let maker = Maker::new(BufferKind::UdmabufMemfd)?;
    let memfd = memfd(len)?;
    let mut mapping = Mapping::aligned(memfd.target(), len)?;
    // SAFETY: the memfd is this program's own and sealed against shrinking. Until the threads are done
    // nothing else touches its content: creating a udmabuf pins pages and does not read them.
    let bytes = unsafe { mapping.bytes() };
    let buffer = if huge {
        read(file, bytes, collapse, || ())?;
        maker.cover(memfd)?
    } else {
        read(file, bytes, |_| Ok(()), || maker.cover(memfd))??
    };
    Ok((buffer, mapping))
}

/// Reads the file from several threads, each of which prepares the memory of a read first, and does
/// `meanwhile` in this one.
fn read<T>(
    file: &File,
    bytes: &mut [u8],
    prepare: impl Fn(&mut [u8]) -> Result<(), Os> + Sync,
    meanwhile: impl FnOnce() -> T,
) -> Result<T> {
    let parts = Mutex::new(bytes.chunks_mut(READ).enumerate());
    let reader = || -> Result<()> {
        loop {
            let next = parts.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((index, part)) = next else { return Ok(()) };
            prepare(part).map_err(refused("MADV_COLLAPSE", &[NO_HUGE]))?;
            file.read_exact_at(part, (index * READ) as u64).map_err(failed("pread"))?;
        }
    };
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS).map(|_| scope.spawn(reader)).collect();
        let result = meanwhile();
        for reader in readers {
            reader.join().expect("a reader does not panic")?;
        }
        Ok(result)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Status;
    use crate::pattern::Pattern;

    #[test]
    fn parallel_parts_fill_the_buffer_or_fail_on_a_short_file() {
        let (mut content, pattern) = (vec![0; 2 * READ + 12344], Pattern::new(3));
        pattern.fill(&mut content, 0);
        let mut named = tempfile::NamedTempFile::new().expect("a file");
        std::io::Write::write_all(&mut named, &content).expect("written");
        let mut bytes = vec![0; content.len()];
        assert_eq!(read(named.as_file(), &mut bytes, |_| Ok(()), || 7), Ok(7));
        assert_eq!(pattern.check(&bytes, 0), Ok(()));
        bytes.push(0);
        assert!(read(named.as_file(), &mut bytes, |_| Ok(()), || ()).is_err());
        let refused = read(named.as_file(), &mut bytes, |_| Err(Os::AGAIN), || ());
        assert_eq!(refused.expect_err("refused").status, Status::Unavailable);
    }
}
