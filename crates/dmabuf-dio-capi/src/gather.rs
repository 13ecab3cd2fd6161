// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many small pieces of a file at once.

use std::ffi::{c_char, c_int};

use dmabuf_dio::gather::{Found, Gatherer, Gathering, PieceError};

use crate::buffer::{Buffer, output};
use crate::failure::{Failure, Outcome, guard};
use crate::options::{Options, Use};
use crate::pointers::{exclusive, fd, free, path, shared};
use crate::report::{self, Report};

/// A file and a buffer, set up for calls that read pieces of the file into the buffer. It has its own
/// descriptors of both, so the caller may close the file and free the buffer.
///
/// Use it from one thread at a time, and not in a child of fork(2).
#[derive(Debug)]
pub struct Gather {
    gathering: Gathering,
    /// The pieces of the last call, for their memory.
    pieces: Vec<dmabuf_dio::gather::Piece>,
}

/// A range of a file and its place in the buffer, in bytes. The structure never grows.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// Offset in the file.
    pub offset: u64,
    /// Offset in the buffer.
    pub buf_offset: u64,
    /// Length.
    pub length: u64,
}

/// The result for a piece. The structure never grows.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PieceResult {
    /// Offset of the bytes in the buffer: the piece's place, or, if the piece is not aligned, an offset
    /// in the spare bytes.
    pub start: u64,
    /// Number of bytes of the piece that are there.
    pub length: u64,
    /// With an error: for `-ENODATA` the end of the file, for `-ENOBUFS` how many more spare bytes are
    /// needed, else the offset in the file at which reading failed. 0 if there is no error.
    pub detail: u64,
    /// 0 if the piece is complete; `-ENODATA` if the file ends before it does; `-ENOBUFS` if it is not
    /// aligned and there are not enough spare bytes; else the error of the kernel or the device.
    pub error: i32,
    /// Always 0.
    pub reserved: u32,
}

impl PieceResult {
    fn of(piece: Result<Found, PieceError>) -> Self {
        let (found, detail, error) = match piece {
            Ok(found) => (Some(found), 0, 0),
            Err(PieceError::EndOfFile { found, end }) => (Some(found), end, libc::ENODATA),
            Err(PieceError::NoRoom { needed }) => (None, needed, libc::ENOBUFS),
            Err(PieceError::Failed { offset, errno }) => (None, offset, errno.raw()),
            Err(_) => (None, 0, libc::EIO),
        };
        let (start, length) = found.map_or((0, 0), |found| (found.start, found.len));
        Self { start, length, detail, error: -error, reserved: 0 }
    }
}

/// Sets up gathers from the regular file or block device at `path` into `buffer`. `options` may be a
/// null pointer; the pointer for its callback must stay valid until the gather is freed. All pages of a
/// memfd are allocated.
///
/// Returns 0, or errors as for `dmabuf_dio_load_into`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_gather_open(
    buffer: *const Buffer,
    path: *const c_char,
    options: *const Options,
    gather: *mut *mut Gather,
) -> c_int {
    // SAFETY: as the header demands.
    guard(|| unsafe {
        output(gather, "gather", || open(buffer, Gatherer::new(self::path(path, "path")?), options))
    })
}

/// Sets up gathers like `dmabuf_dio_gather_open`, from a descriptor that is open for reading and still
/// belongs to the caller.
///
/// Returns 0, or errors as for `dmabuf_dio_load_into_fd`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_gather_open_fd(
    buffer: *const Buffer,
    descriptor: c_int,
    options: *const Options,
    gather: *mut *mut Gather,
) -> c_int {
    // SAFETY: as the header demands.
    guard(|| unsafe {
        output(gather, "gather", || open(buffer, Gatherer::from_fd(fd(descriptor)?), options))
    })
}

/// # Safety
///
/// As the header demands.
unsafe fn open(
    buffer: *const Buffer,
    gatherer: Gatherer<'_>,
    options: *const Options,
) -> Outcome<Gather> {
    // SAFETY: as the caller promises.
    let (buffer, options) =
        unsafe { (shared(buffer, "buffer")?, Options::read(options, Use::Gather)?) };
    let gathering = options.gather(gatherer)?.open(buffer.buf())?;
    Ok(Gather { gathering, pieces: Vec::new() })
}

/// Stores the alignment that a piece needs to be read to its place, in bytes: in `file` that of its
/// file offset and length, in `buf` that of its buffer offset. Other pieces are read to the spare
/// bytes. Both are 1 if no alignment is needed. Either may be a null pointer.
///
/// Returns 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_gather_alignment(
    gather: *const Gather,
    file: *mut u64,
    buf: *mut u64,
) -> c_int {
    guard(|| {
        // SAFETY: as the header demands.
        let (of_file, of_buffer) = unsafe { shared(gather, "gather") }?.gathering.alignment();
        for (out, value) in [(file, of_file), (buf, of_buffer)] {
            // SAFETY: null, or an address for a number, as the header demands.
            if let Some(out) = unsafe { out.as_mut() } {
                *out = value;
            }
        }
        Ok(0)
    })
}

/// Stores in `bytes` how many spare bytes these pieces need, in a range that starts at a multiple of the
/// page size: 0 if all are aligned.
///
/// Returns 0; `-EOVERFLOW` if the range of a piece overflows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_gather_room(
    gather: *mut Gather,
    pieces: *const Piece,
    count: usize,
    bytes: *mut u64,
) -> c_int {
    guard(|| {
        // SAFETY: as the header demands.
        let (gather, bytes) = unsafe { (exclusive(gather, "gather")?, exclusive(bytes, "bytes")?) };
        // SAFETY: as above.
        unsafe { gather.take(pieces, count) }?;
        *bytes = gather.gathering.room(&gather.pieces)?;
        Ok(0)
    })
}

/// Sets the range of the buffer, in bytes, for the blocks that enclose pieces that are not aligned.
/// Every call uses it from its start. Without spare bytes such pieces fail with `-ENOBUFS` if direct
/// I/O is used.
///
/// Returns 0; `-ERANGE` or `-EOVERFLOW` if it exceeds the buffer: the old range stays in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_gather_set_spare(
    gather: *mut Gather,
    offset: u64,
    length: u64,
) -> c_int {
    guard(|| {
        // SAFETY: as the header demands.
        let gather = unsafe { exclusive(gather, "gather") }?;
        let end = offset.checked_add(length).ok_or_else(|| {
            let message = format!("the spare range of {length} bytes at {offset} wraps");
            Failure::new(libc::EOVERFLOW, message, "choose a smaller offset or length")
        })?;
        gather.gathering.set_spare(offset..end)?;
        Ok(0)
    })
}

/// Reads `count` pieces of the file into the buffer. Blocks until each is read or has failed. `results`
/// has room for `count` results, in the order of the pieces, or is a null pointer. `report` may be a
/// null pointer, too.
///
/// Pieces may be in any order; identical ones are read once. A piece that fails does not affect the
/// others.
///
/// Returns the number of pieces that are not complete; their results say why. On error no result is
/// filled in: `-ERANGE` or `-EOVERFLOW` if a piece exceeds the buffer, `-EINVAL` if two that are not
/// identical overlap there or one is in the spare bytes, each before anything was read; `-ECANCELED`
/// and others, as for `dmabuf_dio_load_into`, after which the places of all pieces are undefined.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_gather_read(
    gather: *mut Gather,
    pieces: *const Piece,
    count: usize,
    results: *mut PieceResult,
    report: *mut *mut Report,
) -> i64 {
    guard(|| {
        // SAFETY: as the header demands.
        let gather = unsafe {
            report::clear(report);
            exclusive(gather, "gather")?
        };
        // SAFETY: as above.
        unsafe { gather.take(pieces, count) }?;
        let gathered = gather.gathering.read(&gather.pieces)?;
        if !results.is_null() {
            for (number, piece) in gathered.pieces().enumerate() {
                // SAFETY: there is room for as many results as pieces.
                unsafe { results.add(number).write(PieceResult::of(piece)) };
            }
        }
        // SAFETY: as above.
        unsafe { report::give(report, || Report::of_gather(&gathered.report())) }?;
        Ok(gathered.errors().len() as i64)
    })
}

/// Frees a gather, with its descriptors and its ring. Does nothing for a null pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_gather_free(gather: *mut Gather) {
    // SAFETY: the handle is not used any more, as the header demands.
    unsafe { free(gather) };
}

impl Gather {
    /// # Safety
    ///
    /// `pieces` has `count` entries.
    unsafe fn take(&mut self, pieces: *const Piece, count: usize) -> Outcome<()> {
        self.pieces.clear();
        if count == 0 {
            return Ok(());
        }
        if pieces.is_null() {
            return Err(Failure::null("pieces"));
        }
        if u32::try_from(count).is_err() {
            let message = format!("{count} pieces are too many for one call");
            return Err(Failure::invalid(message, "make several calls"));
        }
        // SAFETY: as the caller promises.
        let pieces = unsafe { std::slice::from_raw_parts(pieces, count) };
        self.pieces.extend(pieces.iter().map(|piece| dmabuf_dio::gather::Piece {
            offset: piece.offset,
            buf_offset: piece.buf_offset,
            len: piece.length,
        }));
        Ok(())
    }
}
