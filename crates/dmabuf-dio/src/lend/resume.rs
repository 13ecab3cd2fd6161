// SPDX-License-Identifier: MIT OR Apache-2.0
//! Resumes READ and WRITE, which a signal ends early.
//!
//! The module's calls end on any signal, so that a process can be stopped and frozen. Callers
//! that handle other signals, such as an interval timer, do not see this.

use dmabuf_dio_sys::Result;
use dmabuf_dio_sys::dio::ReadWrite;

use crate::errno::Errno;

/// The result of a READ or WRITE: the moved bytes, and the reason if these are not all.
type Moved = std::result::Result<ReadWrite, (Errno, ReadWrite)>;

/// Makes a READ or WRITE, and resumes it after every signal, until it completes, fails or is
/// cancelled. The result covers the request as a whole.
pub(super) fn read_write(
    request: ReadWrite,
    is_cancelled: impl Fn() -> bool,
    mut call: impl FnMut(&mut ReadWrite) -> Result<()>,
) -> Moved {
    let mut whole = request;
    loop {
        let left = request.length.saturating_sub(whole.done);
        let mut part = ReadWrite {
            file_offset: request.file_offset + whole.done,
            buf_offset: request.buf_offset + whole.done,
            length: left,
            ..request
        };
        let result = call(&mut part);
        whole = ReadWrite {
            align: part.align,
            done: whole.done + part.done.min(left),
            direct: whole.direct + part.direct.min(left),
            refusal: part.refusal,
            ..request
        };
        match result {
            Ok(()) => return Ok(whole),
            // The signal came first, but a device misses the data moved so far.
            Err(Errno::INTR) if whole.refusal != 0 => return Err((Errno::BUSY, whole)),
            Err(Errno::INTR) if whole.done == request.length => return Ok(whole),
            Err(Errno::INTR) if !is_cancelled() => {}
            Err(errno) => return Err((errno, whole)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const REQUEST: ReadWrite = ReadWrite {
        file_fd: 7,
        flags: 0,
        file_offset: 1000,
        buf_offset: 50,
        length: 100,
        chunk: 4096,
        depth: 3,
        align: 0,
        done: 0,
        direct: 0,
        refusal: 0,
        reserved: 0,
    };

    /// A kernel that moves `steps` bytes per call, half of them directly, and ends each call but
    /// the last with a signal. Returns the result and the requested ranges.
    fn interrupted(steps: &[u64], last: Result<()>) -> (Moved, Vec<[u64; 3]>) {
        let mut asked = Vec::new();
        let result = read_write(
            REQUEST,
            || false,
            |part| {
                assert_eq!((part.file_fd, part.chunk, part.depth), (7, 4096, 3));
                assert_eq!((part.done, part.direct, part.align, part.refusal), (0, 0, 0, 0));
                part.align = 512;
                part.done = steps[asked.len()];
                part.direct = part.done / 2;
                asked.push([part.file_offset, part.buf_offset, part.length]);
                if asked.len() < steps.len() { Err(Errno::INTR) } else { last }
            },
        );
        (result, asked)
    }

    #[test]
    fn interrupted_call_resumes_after_completed_bytes() {
        let (result, asked) = interrupted(&[10, 0, 60, 30], Ok(()));
        let whole = result.expect("through");
        assert_eq!((whole.done, whole.direct, whole.align), (100, 50, 512));
        assert_eq!(asked, [[1000, 50, 100], [1010, 60, 90], [1010, 60, 90], [1070, 120, 30]]);
        assert_eq!(ReadWrite { done: 0, direct: 0, align: 0, ..whole }, REQUEST);
    }

    #[test]
    fn resume_stops_at_the_end_of_file() {
        let (result, asked) = interrupted(&[40, 20], Ok(()));
        assert_eq!(result.expect("short").done, 60);
        assert_eq!(asked.len(), 2);
    }

    #[test]
    fn signal_after_the_last_byte_is_ignored() {
        let (result, asked) = interrupted(&[40, 60], Err(Errno::INTR));
        assert_eq!(result.expect("all of it").done, 100);
        assert_eq!(asked.len(), 2);
    }

    #[test]
    fn error_counts_bytes_from_the_start_of_the_range() {
        let (result, _) = interrupted(&[40, 16], Err(Errno::IO));
        let (errno, whole) = result.expect_err("failed");
        assert_eq!((errno, whole.done, whole.direct), (Errno::IO, 56, 28));
        let refused = read_write(
            REQUEST,
            || false,
            |part| {
                (part.done, part.refusal) = if part.length == 100 { (1, 0) } else { (2, 4) };
                Err(if part.refusal == 0 { Errno::INTR } else { Errno::BUSY })
            },
        );
        let (errno, whole) = refused.expect_err("refused");
        assert_eq!((errno, whole.done, whole.refusal), (Errno::BUSY, 3, 4));
    }

    #[test]
    fn refusal_during_a_signal_is_kept() {
        for moved in [40, 100] {
            let mut calls = 0;
            let call = |part: &mut ReadWrite| {
                calls += 1;
                (part.done, part.refusal) = (moved, 4);
                Err(Errno::INTR)
            };
            let (errno, whole) = read_write(REQUEST, || false, call).expect_err("refused");
            assert_eq!((errno, whole.done, whole.refusal, calls), (Errno::BUSY, moved, 4, 1));
        }
    }

    #[test]
    fn cancellation_stops_resuming() {
        let calls = Cell::new(0);
        let result = read_write(
            REQUEST,
            || calls.get() == 2,
            |part| {
                calls.set(calls.get() + 1);
                part.done = 5;
                Err(Errno::INTR)
            },
        );
        let (errno, whole) = result.expect_err("called off");
        assert_eq!((errno, whole.done, calls.get()), (Errno::INTR, 10, 2));
    }
}
