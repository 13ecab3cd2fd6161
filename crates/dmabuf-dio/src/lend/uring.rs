// SPDX-License-Identifier: MIT OR Apache-2.0
//! A bare `io_uring`.

use io_uring::IoUring;
use io_uring::types::{SubmitArgs, Timespec};

use super::error::LendError;
use crate::errno::Errno;

/// Maximum duration of [`wait`].
const TICK: Timespec = Timespec::new().nsec(100_000_000);
/// Creates a bare ring for one thread. It polls for completions if `polled`.
pub(crate) fn create(depth: u32, polled: bool) -> Result<IoUring, LendError> {
    let mut builder = IoUring::builder();
    if polled {
        builder.setup_iopoll();
    }
    let mut modern = builder.clone();
    modern.setup_single_issuer().setup_defer_taskrun();
    checked(match modern.build(depth.max(1)) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => builder.build(depth.max(1)),
        result => result,
    })
}

/// Creates one that any thread may use.
pub(super) fn create_shared(entries: u32) -> Result<IoUring, LendError> {
    checked(IoUring::new(entries))
}

/// [`wait`] needs `IORING_ENTER_EXT_ARG`, which came with Linux 5.11. Submits nothing once: profiles of containers
/// may allow the call that creates a ring, and none that uses it.
fn checked(uring: std::io::Result<IoUring>) -> Result<IoUring, LendError> {
    let uring = uring.map_err(|error| LendError::Ring { errno: Errno::from(&error) })?;
    if !uring.params().is_feature_ext_arg() {
        return Err(LendError::Ring { errno: Errno::from_raw(libc::EOPNOTSUPP) });
    }
    match uring.submitter().submit() {
        Err(error)
            if matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES | libc::ENOSYS)) =>
        {
            Err(LendError::Ring { errno: Errno::from(&error) })
        }
        _ => Ok(uring),
    }
}

/// Submits the queued requests, and blocks until completions or a signal arrive, or [`TICK`] has
/// passed.
pub(super) fn wait(uring: &IoUring, completions: usize) -> Result<(), Errno> {
    let args = SubmitArgs::new().timespec(&TICK);
    match uring.submitter().submit_with_args(completions, &args) {
        Ok(_) => Ok(()),
        Err(error) => match error.raw_os_error() {
            Some(libc::ETIME | libc::EINTR | libc::EAGAIN | libc::EBUSY) => Ok(()),
            _ => Err(Errno::from(&error)),
        },
    }
}
