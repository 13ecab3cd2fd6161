// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads.

use std::ffi::{c_char, c_int};

use dmabuf_dio::Loader;
use dmabuf_dio_keep::{is_kept, resolve};

use crate::buffer::{Buffer, output};
use crate::failure::{Outcome, guard};
use crate::options::{Options, Use};
use crate::pointers::{fd, path, shared};
use crate::report::{self, Report};

/// Loads the regular file or block device at `path`, or a range of it, into a new buffer. Blocks until
/// all of it is loaded. The path `keep:NAME` means what `dmabuf-dio keep` keeps under that name: the buffer is that
/// memory, read-only and without a report, unless another kind, a range or other settings ask for memory of its own.
///
/// `options` and `report` may be null pointers. Otherwise `report` receives a report of the transfer,
/// to be freed with `dmabuf_dio_report_free`. Bytes of the buffer outside the content are zero. A memfd
/// ends where the content ends; with `DMABUF_DIO_KIND_FILE` it also begins where the content begins.
///
/// Returns 0. On error no buffer is created: `-ENOENT`, `-EACCES` and others for the file; `-EINVAL` if
/// it is neither a regular file nor a block device, or for an invalid setting; `-ENODATA` if it is
/// empty or ends before the range does; `-EOPNOTSUPP` if no backend can create such a buffer here;
/// `-ENOMEM`; `-EIO` and others of the device; `-ECANCELED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_load(
    path: *const c_char,
    options: *const Options,
    buffer: *mut *mut Buffer,
    report: *mut *mut Report,
) -> c_int {
    // SAFETY: as the header demands.
    guard(|| unsafe {
        report::clear(report);
        output(buffer, "buffer", || {
            let path = self::path(path, "path")?;
            if is_kept(path) && Options::read(options, Use::Load)?.takes_kept() {
                if let Some(kept) = dmabuf_dio_keep::open(path)? {
                    return Ok(kept.into());
                }
            }
            new(Loader::new(resolve(path)?), options, report)
        })
    })
}

/// Loads like `dmabuf_dio_load`, from a descriptor that is open for reading. Its position is neither
/// used nor changed, and it still belongs to the caller.
///
/// Returns 0, or errors as for `dmabuf_dio_load`, and `-EBADF`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_load_fd(
    descriptor: c_int,
    options: *const Options,
    buffer: *mut *mut Buffer,
    report: *mut *mut Report,
) -> c_int {
    // SAFETY: as the header demands.
    guard(|| unsafe {
        report::clear(report);
        output(buffer, "buffer", || new(Loader::from_fd(fd(descriptor)?), options, report))
    })
}

/// Loads the file at `path`, or a range of it, into an existing buffer, at `buf_offset` bytes. Blocks
/// until all of it is loaded. Other bytes of the buffer do not change.
///
/// Returns 0. On error the range is undefined after the first `dmabuf_dio_error_done` bytes. Errors are
/// those of `dmabuf_dio_load`, and `-ERANGE` if the range exceeds the buffer; `-EACCES` if the buffer
/// cannot be written; `-EBUSY` if a device needs synchronisation that the exporter does not do;
/// `-EINPROGRESS` if the kernel refuses to wait for requests in flight: the range may then change until
/// the process ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_load_into(
    buffer: *const Buffer,
    buf_offset: u64,
    path: *const c_char,
    options: *const Options,
    report: *mut *mut Report,
) -> c_int {
    // SAFETY: as the header demands.
    guard(|| unsafe {
        report::clear(report);
        into(buffer, buf_offset, Loader::new(resolve(self::path(path, "path")?)?), options, report)
    })
}

/// Loads like `dmabuf_dio_load_into`, from a descriptor that is open for reading and still belongs to
/// the caller.
///
/// Returns 0, or errors as for `dmabuf_dio_load_into`, and `-EBADF`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_load_into_fd(
    buffer: *const Buffer,
    buf_offset: u64,
    descriptor: c_int,
    options: *const Options,
    report: *mut *mut Report,
) -> c_int {
    // SAFETY: as the header demands.
    guard(|| unsafe {
        report::clear(report);
        into(buffer, buf_offset, Loader::from_fd(fd(descriptor)?), options, report)
    })
}

/// # Safety
///
/// As the header demands.
unsafe fn new(
    loader: Loader<'_>,
    options: *const Options,
    report: *mut *mut Report,
) -> Outcome<Buffer> {
    // SAFETY: as the caller promises.
    let options = unsafe { Options::read(options, Use::Load) }?;
    let buffer = options.load(loader)?.load()?;
    if let Some(done) = buffer.report() {
        // SAFETY: as the caller promises.
        unsafe { report::give(report, || Report::of(done)) }?;
    }
    Ok(buffer.into())
}

/// # Safety
///
/// As the header demands.
unsafe fn into(
    buffer: *const Buffer,
    buf_offset: u64,
    loader: Loader<'_>,
    options: *const Options,
    report: *mut *mut Report,
) -> Outcome {
    // SAFETY: as the caller promises.
    let (buffer, options) =
        unsafe { (shared(buffer, "buffer")?, Options::read(options, Use::LoadInto)?) };
    let done = options.range(loader)?.load_into(buffer.buf(), buf_offset)?;
    // SAFETY: as the caller promises.
    unsafe { report::give(report, || Report::of(&done)) }?;
    Ok(0)
}
