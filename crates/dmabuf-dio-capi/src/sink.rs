// SPDX-License-Identifier: MIT OR Apache-2.0
//! Destinations for blocks of samples that other libraries, such as libiio, or the program fill.

use std::ffi::{CString, c_char, c_int};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use dmabuf_dio::{Buffer, CancelToken};
use dmabuf_dio_stream::{BlockRing, FileSink, Filled, Function, SocketSink, UsbSink};

use crate::buffer::output;
use crate::failure::{Failure, Outcome, guard};
use crate::pointers::{c_string, exclusive, fd, free, path};

/// The longest wait at a time: blocks that were held back are then written.
const TICK: Duration = Duration::from_millis(100);
/// For a sink that has nothing to poll.
const NAP: Duration = Duration::from_millis(1);

/// Writes dma-bufs that another library or the program fills to a file, a socket or a USB host, one
/// after the other. The blocks are attached once, when the sink is created.
///
/// Only the thread that created it may use and free it, and not in a child of fork(2).
pub struct Sink {
    to: Box<dyn dmabuf_dio_stream::Sink>,
    /// Goes after the endpoint.
    _function: Option<Function>,
    thread: ThreadId,
    how: CString,
    ended: bool,
}

impl Sink {
    fn new(
        mut to: Box<dyn dmabuf_dio_stream::Sink>,
        function: Option<Function>,
        ring: &Arc<BlockRing>,
    ) -> Outcome<Self> {
        to.attach(ring, None)?;
        let thread = std::thread::current().id();
        Ok(Self { to, _function: function, thread, how: CString::default(), ended: false })
    }

    /// # Safety
    ///
    /// Null, or a sink that nobody else uses meanwhile.
    unsafe fn own<'a>(sink: *mut Self) -> Outcome<&'a mut Self> {
        // SAFETY: as the caller promises.
        let sink = unsafe { exclusive(sink, "sink") }?;
        if sink.thread == std::thread::current().id() {
            return Ok(sink);
        }
        let hint = "use a sink in the thread that made it";
        Err(Failure::new(libc::EPERM, "the sink belongs to another thread", hint))
    }

    /// The next block that is done, waiting for it until `end`.
    fn next(&mut self, end: Option<Instant>) -> Outcome<Option<usize>> {
        loop {
            if let Some(filled) = self.to.take()? {
                return Ok(Some(filled.block));
            }
            let pending = self.to.pending();
            if pending.blocks == 0 {
                return Err(Failure::new(
                    libc::ENODATA,
                    "the sink has no block",
                    "write one first",
                ));
            }
            let left = end.map_or(TICK, |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Ok(None);
            }
            match pending.ready {
                Some(wait) => wait.wait(left.min(TICK))?,
                None => std::thread::sleep(left.min(NAP)),
            }
        }
    }

    fn finish(&mut self) -> Outcome {
        if std::mem::replace(&mut self.ended, true) {
            return Ok(0);
        }
        let mut all = self.to.flush().map_err(Failure::from);
        while all.is_ok() && self.to.pending().blocks > 0 {
            all = self.next(None).map(|_| ());
        }
        let finished = self.to.finish().map_err(Failure::from);
        all.and(finished).map(|()| 0)
    }
}

/// The caller's blocks.
///
/// # Safety
///
/// `blocks` is null or has `count` descriptors that nobody closes during the call.
unsafe fn ring(blocks: *const c_int, count: usize, size: u64) -> Outcome<Arc<BlockRing>> {
    if blocks.is_null() {
        return Err(Failure::null("blocks"));
    }
    // SAFETY: as the caller promises.
    let blocks = unsafe { std::slice::from_raw_parts(blocks, count) };
    let blocks = blocks.iter().map(|block| Ok(Buffer::from_fd(duplicate(*block)?)?));
    Ok(Arc::new(BlockRing::of(blocks.collect::<Outcome<_>>()?, size)?))
}

fn duplicate(descriptor: c_int) -> Outcome<OwnedFd> {
    // SAFETY: nobody closes it during the call, as the header demands.
    unsafe { fd(descriptor) }?.try_clone_to_owned().map_err(|error| {
        let errno = error.raw_os_error().unwrap_or(libc::EMFILE);
        let message = format!("cannot duplicate descriptor {descriptor}: {error}");
        Failure::new(errno, message, "allow more open files: ulimit -n")
    })
}

/// Creates a sink for the file at `path`, which is created, or truncated if it exists. A block device
/// is written from its start. If the kernel module is loaded (Linux 7.3), the pages of the blocks are
/// lent to the kernel and written by direct I/O, if `size` is a multiple of 4096; else a thread writes
/// one block at a time.
///
/// `blocks` are the descriptors of `count` dma-bufs, 1 to 4096, such as `iio_block_get_dmabuf_fd` of
/// libiio returns. The first `size` bytes of each are used. The library has duplicates of the
/// descriptors. At any time the file contains the first part of the written data and nothing else.
///
/// Returns 0; `-EINVAL` if a descriptor is not a dma-buf, or for an invalid `count` or `size`;
/// `-ERANGE` if a block is shorter; `-ENOENT`, `-EACCES` and others for the file; `-EBADF`; `-EMFILE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_sink_file(
    path: *const c_char,
    blocks: *const c_int,
    count: usize,
    size: u64,
    sink: *mut *mut Sink,
) -> c_int {
    let make = || {
        // SAFETY: blocks and a path, as the header demands.
        let (path, ring) = unsafe { (self::path(path, "path")?, ring(blocks, count, size)?) };
        Sink::new(Box::new(FileSink::create(path)?), None, &ring)
    };
    // SAFETY: as the header demands.
    guard(|| unsafe { output(sink, "sink", make) })
}

/// Creates a sink for a connected socket. TCP sends the pages of the blocks without a copy if the
/// kernel module is loaded (Linux 7.3) and the network card supports scatter-gather. Otherwise, and for
/// a Unix socket, the CPU copies them. The blocks are as for `dmabuf_dio_sink_file`.
///
/// The library has a duplicate of the descriptor, may make the socket non-blocking, and shuts it down
/// for writing at the end, by `dmabuf_dio_sink_finish`.
///
/// Returns 0, or errors as for `dmabuf_dio_sink_file`, and `-ENOTSOCK`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_sink_socket(
    descriptor: c_int,
    blocks: *const c_int,
    count: usize,
    size: u64,
    sink: *mut *mut Sink,
) -> c_int {
    let make = || {
        // SAFETY: blocks, as the header demands.
        let ring = unsafe { ring(blocks, count, size) }?;
        let socket = SocketSink::new(duplicate(descriptor)?, format!("descriptor {descriptor}"));
        Sink::new(Box::new(socket), None, &ring)
    };
    // SAFETY: as the header demands.
    guard(|| unsafe { output(sink, "sink", make) })
}

/// Creates a sink for a USB host: describes a function with one bulk endpoint in `folder`, where an
/// instance of functionfs is mounted, and blocks until a host has chosen its configuration. Bind the
/// gadget meanwhile: that is possible as soon as `folder` has a file `ep1`. The function exists until
/// the sink is freed. The controller reads the blocks by DMA; it must support scatter-gather. The
/// blocks are as for `dmabuf_dio_sink_file`.
///
/// Returns 0; `-ENOENT` if functionfs is not mounted there; `-EBUSY` if another function is described
/// there; errors as for `dmabuf_dio_sink_file` for the blocks, and `-EINVAL` or `-ENOTTY` if the
/// controller or the kernel cannot use them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_sink_usb(
    folder: *const c_char,
    blocks: *const c_int,
    count: usize,
    size: u64,
    sink: *mut *mut Sink,
) -> c_int {
    let make = || {
        // SAFETY: blocks and a path, as the header demands.
        let (folder, ring) = unsafe { (path(folder, "folder")?, ring(blocks, count, size)?) };
        let mut function = Function::new(folder)?;
        function.wait(&CancelToken::new())?;
        let endpoint = UsbSink::open(function.endpoint())?;
        Sink::new(Box::new(endpoint), Some(function), &ring)
    };
    // SAFETY: as the header demands.
    guard(|| unsafe { output(sink, "sink", make) })
}

/// Queues the first `length` bytes of a block, named by its index in the array of blocks, from 0. They
/// follow those of the blocks before. Does not block. Until `dmabuf_dio_sink_wait` returns the block,
/// its content must not change: do not queue it on the device. A block that a device has filled is
/// complete once the program has waited for it, as `iio_block_dequeue` does; the CPU need not have
/// accessed it.
///
/// Returns 0; `-EINVAL` if there is no such block, for a length of 0, or after
/// `dmabuf_dio_sink_finish`; `-ERANGE` for more than the blocks' size; `-ENOSPC`, `-EIO`,
/// `-ECONNRESET`, `-ESHUTDOWN` and others of an earlier block: nothing more can be written then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_sink_write(
    sink: *mut Sink,
    block: usize,
    length: u64,
) -> c_int {
    guard(|| {
        // SAFETY: a sink, as the header demands.
        let sink = unsafe { Sink::own(sink) }?;
        if sink.ended {
            return Err(Failure::invalid("the sink is finished", "make another one"));
        }
        sink.to.queue(Filled { block, bytes: length })?;
        Ok(0)
    })
}

/// Waits until the block that was queued first is delivered, and returns its index in the array of
/// blocks: the device may fill it again. Blocks for at most `milliseconds`; 0 does not block, a
/// negative number waits until the block is delivered.
///
/// Small blocks are held back, for up to 100 ms, until they make a request of 16 MiB or a quarter of
/// all blocks. So do not wait for each one: keep some queued on the device.
///
/// Returns the block; `-EAGAIN` if it is not delivered yet; `-ENODATA` if none is queued; `-ENOSPC`,
/// `-EIO`, `-ECONNRESET`, `-ESHUTDOWN` and others if it cannot be.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_sink_wait(sink: *mut Sink, milliseconds: c_int) -> i64 {
    guard(|| {
        // SAFETY: a sink, as the header demands.
        let sink = unsafe { Sink::own(sink) }?;
        let limit = u64::try_from(milliseconds).ok().map(Duration::from_millis);
        match sink.next(limit.map(|limit| Instant::now() + limit))? {
            Some(block) => Ok(block as i64),
            None => Err(Failure::new(libc::EAGAIN, "no block is delivered yet", "wait longer")),
        }
    })
}

/// Waits until all queued blocks are delivered, and makes a file durable. Nothing can be written
/// afterwards. A second call does nothing.
///
/// Returns 0; `-ENOSPC`, `-EIO` and others if something is not delivered.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_sink_finish(sink: *mut Sink) -> c_int {
    // SAFETY: a sink, as the header demands.
    guard(|| unsafe { Sink::own(sink) }?.finish())
}

/// Returns a short text that says how the blocks are delivered: `"io_uring, O_DIRECT"`, or why the CPU
/// copies. The string is valid until the next call of this function for the sink. An empty string for a
/// null pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_sink_how(sink: *mut Sink) -> *const c_char {
    // SAFETY: a sink, as the header demands.
    let Some(sink) = (unsafe { sink.as_mut() }) else { return c"".as_ptr() };
    sink.how = c_string(sink.to.facts().how);
    sink.how.as_ptr()
}

/// Frees a sink, with its file, endpoint and function. Blocks that were not delivered are lost: call
/// `dmabuf_dio_sink_finish` before. The blocks still belong to the caller. Does nothing for a null
/// pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_sink_free(sink: *mut Sink) {
    // SAFETY: a sink that is not used any more, as the header demands.
    unsafe { free(sink) }
}
