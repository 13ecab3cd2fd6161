// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading by `io_uring` as in its manual: nothing is registered, allocation and I/O do not overlap.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use io_uring::{IoUring, opcode, types};

/// A part of the file that has not been read yet.
#[derive(Clone, Copy)]
struct FileRange {
    at: usize,
    end: usize,
}

/// Fills `bytes` from the beginning of the file, `depth` requests of `piece` bytes at a time.
/// Returns the number of requests.
pub(crate) fn read(file: &File, bytes: &mut [u8], piece: usize, depth: u32) -> io::Result<usize> {
    let mut ring = IoUring::new(depth)?;
    let fd = types::Fd(file.as_raw_fd());
    let base = bytes.as_mut_ptr();
    let mut rest = (0..bytes.len())
        .step_by(piece)
        .map(|at| FileRange { at, end: bytes.len().min(at + piece) });
    let mut parts: Vec<FileRange> = rest.by_ref().take(depth as usize).collect();
    let mut waiting: Vec<usize> = (0..parts.len()).collect();
    let (mut done, mut in_flight) = (0, 0);
    let mut failed = None;
    loop {
        for slot in waiting.drain(..) {
            let FileRange { at, end } = parts[slot];
            // SAFETY: `at` is within the slice.
            let to = unsafe { base.add(at) };
            let entry = opcode::Read::new(fd, to, (end - at) as u32)
                .offset(at as u64)
                .build()
                .user_data(slot as u64);
            // SAFETY: the memory is that of `bytes`, which this function holds until all requests
            // have completed; no two requests are for the same part. There is room for `depth`.
            unsafe { ring.submission().push(&entry) }.map_err(io::Error::other)?;
            in_flight += 1;
        }
        if in_flight == 0 {
            return failed.map_or(Ok(done), Err);
        }
        wait(&mut ring)?;
        for entry in ring.completion() {
            in_flight -= 1;
            let slot = entry.user_data() as usize;
            let Ok(read) = usize::try_from(entry.result()) else {
                failed = Some(io::Error::from_raw_os_error(-entry.result()));
                continue;
            };
            done += read;
            parts[slot].at += read;
            if failed.is_some() {
                // Those in flight still write into the buffer: wait for them.
            } else if read > 0 && parts[slot].at < parts[slot].end {
                waiting.push(slot);
            } else if let Some(next) = rest.next() {
                parts[slot] = next;
                waiting.push(slot);
            }
        }
    }
}

fn wait(ring: &mut IoUring) -> io::Result<()> {
    loop {
        match ring.submit_and_wait(1) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other.map(drop),
        }
    }
}
