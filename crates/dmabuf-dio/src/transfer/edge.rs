// SPDX-License-Identifier: MIT OR Apache-2.0
//! The partial blocks at the ends of a range.

use rustix::io::Errno as Os;

use super::task::Task;
use crate::direction::Direction;
use crate::error::{Error, Result};
use crate::file::extent::Extent;
use crate::memory::Mapping;

/// Transfers a partial block. Returns how many of its bytes were requested with `O_DIRECT`.
pub(crate) fn edge(task: &Task<'_>, mapping: &Mapping, part: Extent) -> Result<u64> {
    match task.direction {
        Direction::Load => {
            let mut bytes = vec![0; part.len as usize];
            let direct = read_edge(task, &mut bytes, part.file)?;
            mapping.write(part.buf, &bytes)?;
            task.watch.add(part.len);
            Ok(direct)
        }
        Direction::Save => {
            let bytes = mapping.to_vec(part.buf, part.len)?;
            write_all(task, &bytes, part.file)?;
            task.watch.add(part.len);
            Ok(0)
        }
    }
}

/// The place where a read or write ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ended {
    /// Bytes moved.
    done: usize,
    /// Offset in the file.
    at: u64,
    /// `None` if a call moved nothing.
    errno: Option<Os>,
}

/// Repeats a call until it has moved `len` bytes from `offset` in the file. It gets the number of
/// bytes moved so far, and their end in the file.
fn repeat(
    offset: u64,
    len: usize,
    mut call: impl FnMut(usize, u64) -> rustix::io::Result<usize>,
) -> Result<(), Ended> {
    let mut done = 0;
    while done < len {
        let at = offset + done as u64;
        match call(done, at) {
            Ok(0) => return Err(Ended { done, at, errno: None }),
            Ok(moved) => done += moved,
            Err(Os::INTR) => {}
            Err(errno) => return Err(Ended { done, at, errno: Some(errno) }),
        }
    }
    Ok(())
}

fn read_all(task: &Task<'_>, bytes: &mut [u8], offset: u64) -> Result<()> {
    let (file, len) = (task.file.buffered()?, bytes.len());
    let pread = |done, at| rustix::io::pread(file, &mut bytes[done..], at);
    repeat(offset, len, pread).map_err(|ended| not_read(task, ended))
}

fn not_read(task: &Task<'_>, Ended { at, errno, .. }: Ended) -> Error {
    errno.map_or_else(|| task.short(at), |errno| task.failed(at, errno))
}

/// Writes through the page cache.
fn write_all(task: &Task<'_>, bytes: &[u8], offset: u64) -> Result<()> {
    let file = task.file.buffered()?;
    let pwrite = |done, at| rustix::io::pwrite(file, &bytes[done..], at);
    repeat(offset, bytes.len(), pwrite)
        .map_err(|ended| task.failed(ended.at, ended.errno.unwrap_or(Os::IO)))
}

/// Memory aligned for `O_DIRECT` on every device with blocks of up to 4 KiB. A device that requires
/// more, as is possible with larger pages, refuses the read, and the page cache is used instead.
#[repr(C, align(4096))]
struct Bounce([u8; 4096]);

/// Reads a partial block through a whole one, bypassing the page cache if the file is open with
/// `O_DIRECT`. Returns how many bytes were requested with `O_DIRECT`.
fn read_edge(task: &Task<'_>, bytes: &mut [u8], offset: u64) -> Result<u64> {
    let block = task.file.align.offset;
    if !task.file.is_direct() || block > 4096 {
        read_all(task, bytes, offset)?;
        return Ok(0);
    }
    let mut bounce = Box::new(Bounce([0; 4096]));
    let pread = |place: &mut [u8], at| rustix::io::pread(task.file.fd(), place, at);
    match read_blocks(bytes, offset, &mut bounce.0[..block as usize], pread) {
        Ok(()) => Ok(bytes.len() as u64),
        // The file system accepts O_DIRECT on open but not on read, or not from there on.
        Err(Ended { done, at, errno: Some(Os::INVAL) }) => {
            read_all(task, &mut bytes[done..], at)?;
            Ok(done as u64)
        }
        Err(ended) => Err(not_read(task, ended)),
    }
}

/// Reads through `block`, in whole blocks of that size. Only a read of 0 bytes means the end of the
/// file: a short one may end anywhere.
fn read_blocks(
    bytes: &mut [u8],
    offset: u64,
    block: &mut [u8],
    mut pread: impl FnMut(&mut [u8], u64) -> rustix::io::Result<usize>,
) -> Result<(), Ended> {
    let mut done = 0;
    while done < bytes.len() {
        let at = offset + done as u64;
        let skip = at % block.len() as u64;
        let (start, skip) = (at - skip, skip as usize);
        let wanted = (skip + bytes.len() - done).min(block.len());
        let read = repeat(start, wanted, |have, at| pread(&mut block[have..], at));
        let have = read.map_or_else(|ended| ended.done, |()| wanted);
        let len = have.saturating_sub(skip);
        bytes[done..done + len].copy_from_slice(&block[skip..skip + len]);
        done += len;
        read.map_err(|ended| Ended { done, at: offset + done as u64, ..ended })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{Control, Watch};
    use crate::file::{Alignment, File, Spec};
    use crate::options::Options;

    const FILE: usize = 3000;

    fn byte(at: usize) -> u8 {
        (at % 251) as u8
    }

    /// A file of [`FILE`] bytes that is read at most `most` bytes at a time, and interrupts every
    /// third call.
    fn reads(most: usize) -> impl FnMut(&mut [u8], u64) -> rustix::io::Result<usize> {
        let mut calls = 0;
        move |place, at| {
            calls += 1;
            assert!(calls < 10_000 && !place.is_empty());
            if calls % 3 == 0 {
                return Err(Os::INTR);
            }
            let at = at as usize;
            let len = place.len().min(most).min(FILE.saturating_sub(at));
            (at..at + len).zip(place).for_each(|(at, place)| *place = byte(at));
            Ok(len)
        }
    }

    #[test]
    fn partial_block_reads_survive_short_reads() {
        let whole: Vec<u8> = (0..FILE).map(byte).collect();
        for (offset, len) in [(0, 512), (1, 511), (700, 100), (511, 2), (100, 2000), (2559, 441)] {
            for most in [1, 7, 100, 512, 4096] {
                let mut bytes = vec![0xee; len];
                let read = read_blocks(&mut bytes, offset as u64, &mut [0; 512], reads(most));
                assert_eq!(read, Ok(()), "{len} from {offset}, {most} at a time");
                assert!(bytes == whole[offset..offset + len], "{len} from {offset}, {most}");
            }
        }
    }

    #[test]
    fn edge_reads_request_whole_blocks() {
        let mut requests = Vec::new();
        let mut all = reads(4096);
        let pread = |place: &mut [u8], at| {
            requests.push((at, place.len()));
            all(place, at)
        };
        read_blocks(&mut [0; 600], 1000, &mut [0; 512], pread).expect("read");
        assert_eq!(requests, [(512, 512), (1024, 512), (1536, 512), (1536, 512)]);
    }

    #[test]
    fn bytes_before_a_failure_are_counted() {
        for most in [1, 100, 512] {
            // The file ends after 2900 bytes of it, and within the bytes to skip.
            for (offset, there) in [(100, 2900), (2990, 10), (FILE, 0), (3050, 0)] {
                let mut bytes = vec![0xee; 3000];
                let read = read_blocks(&mut bytes, offset as u64, &mut [0; 512], reads(most));
                let at = (offset + there) as u64;
                assert_eq!(
                    read,
                    Err(Ended { done: there, at, errno: None }),
                    "from {offset}, {most} at a time"
                );
                let good = bytes[..there].iter().zip(offset..).all(|(one, at)| *one == byte(at));
                assert!(good && bytes[there..].iter().all(|byte| *byte == 0xee));
            }
            let mut left = 2000 / most;
            let mut some = reads(most);
            let pread = |place: &mut [u8], at| {
                left = left.checked_sub(1).ok_or(Os::INVAL)?;
                some(place, at)
            };
            let mut bytes = vec![0xee; 3000];
            let ended = read_blocks(&mut bytes, 10, &mut [0; 512], pread).expect_err("no");
            let Ended { done, at, errno } = ended;
            assert!(errno == Some(Os::INVAL) && (500..2000).contains(&done), "{ended:?}");
            assert_eq!(at, 10 + done as u64);
            assert!(bytes[..done].iter().zip(10..).all(|(one, at)| *one == byte(at)));
            assert!(bytes[done..].iter().all(|byte| *byte == 0xee));
        }
    }

    /// A transfer of a file of [`FILE`] bytes, direct with blocks of that size if there is one.
    fn with_task(direction: Direction, block: Option<u64>, test: impl FnOnce(&Task<'_>)) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        std::fs::write(&path, (0..FILE).map(byte).collect::<Vec<_>>()).expect("written");
        let spec = Spec::Path(path);
        let mut file = File::open(&spec, direction, block.is_some()).expect("a file");
        if let Some(offset) = block {
            (file.why_buffered, file.align) = (None, Alignment { offset, memory: 512 });
        }
        let (options, length) = (Options::default(), FILE as u64);
        let control = Control::default();
        let watch = Watch::start(&control, length);
        test(&Task { file: &file, direction, offset: 0, length, options: &options, watch: &watch });
    }

    #[test]
    fn partial_block_is_copied_to_its_offset() {
        let part = Extent { file: 700, buf: 10, len: 100 };
        // Larger blocks than a page, and none, are read through the page cache.
        for (block, direct) in [(Some(4096), 100), (Some(8192), 0), (None, 0)] {
            with_task(Direction::Load, block, |task| {
                let mapping = Mapping::anonymous(4096).expect("memory");
                mapping.fill(0, 4096, 0xee).expect("filled");
                assert_eq!(edge(task, &mapping, part).expect("read"), direct, "{block:?}");
                let bytes = mapping.to_vec(0, 4096).expect("bytes");
                assert!(bytes[10..110].iter().zip(700..).all(|(one, at)| *one == byte(at)));
                assert!(bytes[..10].iter().chain(&bytes[110..]).all(|byte| *byte == 0xee));
                // Beyond the end there is nothing.
                let behind = edge(task, &mapping, Extent { file: 2990, buf: 0, len: 20 });
                assert!(matches!(behind, Err(Error::ShortFile { end: 3000, .. })), "{behind:?}");
            });
        }
        // The page cache is used if direct reads of such blocks are refused.
        with_task(Direction::Load, Some(2), |task| {
            let mapping = Mapping::anonymous(4096).expect("memory");
            edge(task, &mapping, Extent { file: 701, ..part }).expect("read");
            let bytes = mapping.to_vec(10, 100).expect("bytes");
            assert!(bytes.iter().zip(701..).all(|(one, at)| *one == byte(at)));
        });
        with_task(Direction::Save, Some(512), |task| {
            let mapping = Mapping::anonymous(4096).expect("memory");
            mapping.fill(0, 4096, 0xee).expect("filled");
            assert_eq!(edge(task, &mapping, part).expect("written"), 0);
            let found = std::fs::read(&task.file.path).expect("the file");
            let is_new = |at: usize| (700..800).contains(&at);
            let wanted = |at| if is_new(at) { 0xee } else { byte(at) };
            assert!(
                found.len() == FILE && found.iter().zip(0..).all(|(one, at)| *one == wanted(at))
            );
        });
    }
}
