// SPDX-License-Identifier: MIT OR Apache-2.0
//! Saves.

use std::ffi::{c_char, c_int};

use dmabuf_dio::Saver;

use crate::buffer::Buffer;
use crate::failure::{Failure, Outcome, guard};
use crate::options::{Options, Use};
use crate::pointers::{fd, path, shared};
use crate::report::{self, Report};

/// Saves `length` bytes of a buffer, from `buf_offset` on, to the file at `path`. Blocks until they are
/// durable.
///
/// If the path names a regular file or nothing, a new file is written next to it and renamed to it when
/// it is complete; until then the old file is unchanged. A block device is written in place, from
/// `offset` of the options on. `options` and `report` may be null pointers.
///
/// Returns 0. On error the path still names its old file, unless only making the new name durable
/// failed: `-ENOENT`, `-EACCES`, `-ENOSPC`, `-EFBIG`, `-EIO` and others; `-ERANGE` if the range exceeds
/// the buffer; `-EINVAL` if it is empty, or for an invalid setting; `-EBUSY` and `-EINPROGRESS` as for
/// `dmabuf_dio_load_into`; `-ECANCELED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_save(
    buffer: *const Buffer,
    buf_offset: u64,
    length: u64,
    path: *const c_char,
    options: *const Options,
    report: *mut *mut Report,
) -> c_int {
    // SAFETY: as the header demands.
    guard(|| unsafe {
        report::clear(report);
        let saver = Saver::new(self::path(path, "path")?);
        save(buffer, (buf_offset, length), saver, options, report)
    })
}

/// Saves like `dmabuf_dio_save`, but in place, to the regular file or block device of a descriptor that
/// is open for writing, from `offset` of the options on. The descriptor still belongs to the
/// caller, its position is neither used nor changed, and the file is not truncated.
///
/// Returns 0, or errors as for `dmabuf_dio_save`, and `-EBADF`. After an error the range of the file is
/// undefined after the first `dmabuf_dio_error_done` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_save_fd(
    buffer: *const Buffer,
    buf_offset: u64,
    length: u64,
    descriptor: c_int,
    options: *const Options,
    report: *mut *mut Report,
) -> c_int {
    // SAFETY: as the header demands.
    guard(|| unsafe {
        report::clear(report);
        let saver = Saver::to_fd(fd(descriptor)?);
        save(buffer, (buf_offset, length), saver, options, report)
    })
}

/// # Safety
///
/// As the header demands.
unsafe fn save(
    buffer: *const Buffer,
    (offset, length): (u64, u64),
    saver: Saver<'_>,
    options: *const Options,
    report: *mut *mut Report,
) -> Outcome {
    // SAFETY: as the caller promises.
    let (buffer, options) =
        unsafe { (shared(buffer, "buffer")?, Options::read(options, Use::Save)?) };
    let end = offset.checked_add(length).ok_or_else(|| {
        let message = format!("the range of {length} bytes at {offset} exceeds every buffer");
        Failure::new(libc::EOVERFLOW, message, "choose a smaller offset or length")
    })?;
    let done = options.save(saver)?.save(buffer.buf(), offset..end)?;
    // SAFETY: as the caller promises.
    unsafe { report::give(report, || Report::of(&done)) }?;
    Ok(0)
}
