// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waits for the ends of a stream.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use dmabuf_dio::Errno;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno as Os;

use crate::error::{failed, from_os};

/// A descriptor that a stream polls until its source or sink may have a block to take.
#[derive(Clone, Debug)]
pub struct Wait<'fd>(PollFd<'fd>);

impl<'fd> Wait<'fd> {
    /// Until `fd` can be read: `POLLIN` in poll(2).
    pub fn readable(fd: BorrowedFd<'fd>) -> Self {
        Self(PollFd::from_borrowed_fd(fd, PollFlags::IN))
    }

    /// Until `fd` can be written: `POLLOUT` in poll(2).
    pub fn writable(fd: BorrowedFd<'fd>) -> Self {
        Self(PollFd::from_borrowed_fd(fd, PollFlags::OUT))
    }

    /// Waits for at most `limit`, which must be less than a second. Also returns when a signal
    /// arrives: try to take a block to find out whether there is one.
    ///
    /// # Errors
    ///
    /// [`Error::Stream`](crate::Error::Stream): `ENOMEM`.
    pub fn wait(self, limit: Duration) -> crate::Result<()> {
        wait_for_any(vec![self], limit).map_err(|errno| failed("the stream", "poll", errno))
    }

    /// Until `fd` can be read or written, whichever it is open for: `POLLIN` or `POLLOUT`.
    pub fn ready(fd: BorrowedFd<'fd>) -> Self {
        Self(PollFd::from_borrowed_fd(fd, PollFlags::IN | PollFlags::OUT))
    }
}

impl AsFd for Wait<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// How often a stream checks for cancellation and reports progress.
pub(super) const TICK: Duration = Duration::from_millis(100);

/// Waits for the first of several, at most for `limit`, which is less than a second. A signal ends
/// the wait, too.
pub(super) fn wait_for_any(waits: Vec<Wait<'_>>, limit: Duration) -> Result<(), Errno> {
    let limit = Timespec { tv_sec: 0, tv_nsec: i64::from(limit.subsec_nanos()) };
    let mut fds: Vec<_> = waits.into_iter().map(|wait| wait.0).collect();
    match poll(&mut fds, Some(&limit)) {
        Ok(_) | Err(Os::INTR) => Ok(()),
        Err(errno) => Err(from_os(errno)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::time::Instant;

    use super::*;

    #[test]
    fn wait_ends_at_the_first_descriptor_or_timeout() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let limit = Duration::from_millis(900);
        let took = |waits| {
            let begin = Instant::now();
            wait_for_any(waits, limit).expect("polled");
            begin.elapsed()
        };
        // It can be written, but not read.
        assert!(took(vec![Wait::readable(theirs.as_fd())]) >= limit);
        let both = vec![Wait::readable(theirs.as_fd()), Wait::ready(ours.as_fd())];
        assert!(took(both) < limit);
    }
}
