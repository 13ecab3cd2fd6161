// SPDX-License-Identifier: MIT OR Apache-2.0
//! Saves what a reader gives, through a window: memory of the process that is filled and written
//! piece by piece.
//!
//! Direct I/O needs bytes in memory at offsets that are congruent to those in the file. What programs
//! have in memory rarely is, so the CPU copies it once, while the disk writes what was copied before.

use std::cell::RefCell;
use std::io::{BufRead, ErrorKind};

use super::edge::edge;
use super::layout::Layout;
use super::task::{Task, Transferred};
use super::window::{STEP, Window};
use super::{Job, Progress, plain, ring};
use crate::error::{Error, Result};
use crate::file::extent::Extent;
use crate::lend::{self, Ring};

/// Saves the next bytes of `source` to the range of a task.
pub(crate) fn save(task: &Task<'_>, source: &mut dyn BufRead) -> Result<Transferred> {
    let start = Layout::new(task.offset, task.length, task.file.align.offset)?.data_offset;
    let extent = Extent { file: task.offset, buf: start, len: task.length };
    let window = Window::new(task, extent.buf_end(), 0)?;
    let ring = task.needs_ring(window.end).then(|| lend::create(task.depth(), false));
    let (ring, note) = match ring.transpose() {
        Ok(ring) => (ring, None),
        Err(error) => (None, Some(format!("one request at a time: {error}"))),
    };
    let memory = lend::Memory::process(&window.memory);
    let mut ring = ring.map(|ring| Ring::new(ring, memory));
    let pour = Pour { window: window.clone(), source, task, start, filled: start };
    let pour = RefCell::new(pour);
    let mut core = |job: &Job<'_>| {
        if let Some(ring) = &mut ring {
            return ring::run(ring, job, &mut *pour.borrow_mut());
        }
        let fill = |end| pour.borrow_mut().fill(end);
        plain::run_placed(job, &window.memory, |offset| window.place(offset), fill)
    };
    let mut edge = |part: Extent| {
        pour.borrow_mut().fill(part.buf_end())?;
        edge(task, &window.memory, Extent { buf: window.place(part.buf).0, ..part })
    };
    let mut moved = task.in_parts(extent, &mut core, &mut edge)?;
    moved.copied = moved.direct;
    moved.notes.extend(note);
    Ok(moved)
}

/// What fills the window.
struct Pour<'a> {
    window: Window,
    source: &'a mut dyn BufRead,
    task: &'a Task<'a>,
    /// Where the bytes of the task start.
    start: u64,
    /// Where the bytes that the window has, or had, end.
    filled: u64,
}

impl Pour<'_> {
    /// Fills the window up to `until`. What it had a window's length before that has been written.
    fn fill(&mut self, until: u64) -> Result<()> {
        while self.filled < until {
            let bytes = match self.source.fill_buf() {
                Ok([]) => Err(ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                result => result,
            };
            let bytes = bytes.map_err(|error| Error::Source {
                path: self.task.file.path.clone(),
                offset: self.filled - self.start,
                length: self.task.length,
                error,
            })?;
            let (at, limit) = self.window.place(self.filled);
            let len = (until.min(limit) - self.filled).min(bytes.len() as u64);
            self.window.memory.write(at, &bytes[..len as usize])?;
            self.source.consume(len as usize);
            self.filled += len;
        }
        Ok(())
    }
}

impl ring::Buffer for Pour<'_> {
    fn prepare(&mut self, ring: &Ring, end: u64, so_far: Progress) -> Result<bool> {
        if end.saturating_sub(self.window.len()) > so_far.done {
            return Ok(false);
        }
        if end > self.filled {
            // This keeps the disk busy. Requests that are not submitted now are submitted later.
            ring.submit_some();
            self.fill(end)?;
        }
        Ok(true)
    }

    fn meanwhile(&mut self, ring: &Ring, so_far: Progress) -> Result<()> {
        let room = (so_far.done + self.window.len()).min(self.window.end);
        if room > self.filled {
            ring.submit_some();
            self.fill(room.min(self.filled + STEP))?;
        }
        Ok(())
    }

    fn place(&self, offset: u64) -> (u16, u64, u64) {
        let (at, limit) = self.window.place(offset);
        (0, at, limit)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufReader, Read};

    use super::*;
    use crate::control::{Control, Watch};
    use crate::direction::Direction;
    use crate::file::{File, Spec};
    use crate::options::Options;

    fn content(len: u64) -> Vec<u8> {
        (0..len).map(|at| (at % 251) as u8 ^ (at >> 12) as u8).collect()
    }

    /// Gives at most 7 bytes at a time at first, then more and more, and is interrupted between.
    struct Trickle<'a>(&'a [u8], usize);

    impl Read for Trickle<'_> {
        fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
            self.1 += 1;
            if self.1 % 2 == 0 {
                return Err(ErrorKind::Interrupted.into());
            }
            let most = out.len().min(7 * self.1);
            self.0.read(&mut out[..most])
        }
    }

    /// Saves `length` bytes to `offset` of a file of 50,000 bytes, and returns what it has then.
    fn saved(
        (offset, length): (u64, u64),
        chunk: u64,
        direct: bool,
        source: &mut dyn BufRead,
    ) -> Result<(Vec<u8>, Transferred)> {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        std::io::Write::write_all(&mut file, &vec![0xee; 50_000]).expect("written");
        let path = file.path().to_owned();
        let direction = Direction::Save;
        let file = File::open(&Spec::Path(path.clone()), direction, direct).expect("open");
        let options =
            Options { block_size: Some(chunk), queue_depth: Some(2), ..Options::default() };
        let control = Control::default();
        let watch = Watch::start(&control, length);
        let task =
            Task { file: &file, direction, offset, length, options: &options, watch: &watch };
        let moved = save(&task, source)?;
        Ok((std::fs::read(path).expect("read"), moved))
    }

    #[test]
    fn every_byte_of_a_reader_arrives() {
        for range in [
            (0, 1),
            (0, 4096),
            (0, 5000),
            (100, 50),
            (100, 5000),
            (4096, 70_000),
            // More than the window of four requests, which is passed several times.
            (0, 1 << 20),
            (0, (1 << 20) + 5),
            (5001, (1 << 20) + 5),
        ] {
            for (chunk, direct) in [(16 << 10, true), (16 << 10, false), (1 << 20, true)] {
                let all = content(range.1 + 9);
                let mut source = BufReader::with_capacity(3000, Trickle(&all, 0));
                let (found, moved) = saved(range, chunk, direct, &mut source).expect("saved");
                let (start, end) = (range.0 as usize, (range.0 + range.1) as usize);
                assert!(found[start..end] == all[..range.1 as usize], "{range:?} {chunk} {direct}");
                assert!(found[..start].iter().chain(&found[end..]).all(|byte| *byte == 0xee));
                assert_eq!(found.len(), end.max(50_000));
                assert_eq!(moved.copied, moved.direct, "by way of the window");
                let mut rest = Vec::new();
                source.read_to_end(&mut rest).expect("read");
                assert_eq!(rest, all[range.1 as usize..], "and no byte more is taken");
            }
        }
    }

    #[test]
    fn reader_that_fails_or_ends_stops_the_save() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
                Err(std::io::Error::from_raw_os_error(libc::EREMOTEIO))
            }
        }
        let (all, range) = (content(300_000), (4096, 400_000));
        let ends = saved(range, 16 << 10, true, &mut &all[..]).expect_err("it ends");
        let mut broken = all.chain(BufReader::new(Broken));
        let fails = saved(range, 16 << 10, true, &mut broken).expect_err("it fails");
        for (error, number) in [(ends, None), (fails, Some(libc::EREMOTEIO))] {
            let Error::Source { offset: 300_000, length: 400_000, .. } = &error else {
                panic!("{error}")
            };
            assert_eq!(error.errno().map(crate::Errno::raw), number, "{error}");
        }
    }
}
