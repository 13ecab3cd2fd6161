// SPDX-License-Identifier: MIT OR Apache-2.0
//! The system heap reads the file while it allocates the buffer: a heap flag of the patch series.

use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicI32, Ordering};

use dmabuf_dio_sys::heap;

use super::driver::Driver;
use super::{Backend, Refusal};
use crate::buffer::shared::Shared;
use crate::errno::Errno;
use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::memory::available::{self, Charged};
use crate::memory::page::page_size;
use crate::memory::place;
use crate::probe::sample::Sample;
use crate::refusal::attempt::Attempt;
use crate::refusal::{self, SERIES};
use crate::threads::watched;
use crate::transfer::system_heap;
use crate::transfer::task::{Fresh, REFUSED_DIRECT, Task, Transferred};

pub(crate) struct Heap;

impl Driver for Heap {
    fn backend(&self) -> Backend {
        Backend::Heap
    }

    /// Allocates a buffer and loads into it in one call.
    fn load(&self, task: &Task<'_>, _: Kind) -> Result<Fresh, Attempt> {
        let device = system_heap::open(Backend::Heap)?;
        let layout = task.layout()?;
        available::ensure(layout.buffer, Charged::Nobody)?;
        if task.watch.is_cancelled() {
            return Err(task.cancelled(0).into());
        }
        let wanted = layout.data_offset + task.length;
        let place = task.options.place(layout.buffer)?;
        let call = |file| {
            let read = || heap::alloc_read_file(device.as_fd(), wanted, file, layout.base);
            read_file(task, || place::during(place.as_ref(), read))?
        };
        let mut moved = Transferred { direct: task.length, ..Transferred::default() };
        let mut result = call(task.file.fd())?;
        if !task.file.is_direct() {
            moved.direct = 0;
        } else if matches!(result, Err(Errno::INVAL)) {
            // A kernel that does not know the flag reports the error again.
            moved = Transferred { notes: vec![REFUSED_DIRECT.into()], ..Transferred::default() };
            if let Ok(file) = task.file.buffered() {
                result = call(file)?;
            }
        }
        let (fd, read) = result.map_err(|errno| explain(task, errno, layout.buffer))?;
        let end = layout.base + read;
        if read == 0 && task.file.end()? > layout.base {
            return Err(refuse_flag(Errno::INVAL).into());
        }
        if end < task.end() {
            return Err(task.short(end).into());
        }
        if task.watch.is_cancelled() {
            return Err(task.cancelled(task.length).into());
        }
        task.watch.set(task.length);
        let mut buf = Shared::from_parts(fd, layout.buffer);
        layout.zero_before(&mut buf)?;
        Ok(Fresh { buf, moved })
    }

    fn try_out(&self) -> Result<String, Attempt> {
        try_out()?;
        Ok("loads into a dma-buf of the system heap while allocating it".into())
    }
}

/// Makes the call and reports progress from the storage requests of the calling thread. Only a
/// fatal signal ends the call, so a cancelled call runs to its end.
fn read_file<T: Send>(task: &Task<'_>, read: impl FnOnce() -> T + Send) -> Result<T> {
    if task.is_one_request() {
        return Ok(read());
    }
    let caller = AtomicI32::new(0);
    watched(
        || {
            caller.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Relaxed);
            read()
        },
        || {
            if let Some(asked) = asked_of_storage(caller.load(Ordering::Relaxed)) {
                // Requested bytes have not arrived yet: all of them have when the call returns.
                task.watch.set(asked.min(task.length - 1));
            }
        },
    )
}

/// Bytes that a thread of this process requested from storage; `None` if unknown.
fn asked_of_storage(thread: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/io")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("read_bytes:")?.trim().parse().ok())
}

/// Interprets the error of a call.
fn explain(task: &Task<'_>, errno: Errno, wanted: u64) -> Attempt {
    match errno {
        Errno::NOMEM => Error::NoMemory { wanted, available: None, reserve: None }.into(),
        Errno::INTR => task.cancelled(0).into(),
        Errno::INVAL | Errno::OPNOTSUPP | Errno::NOTTY | Errno::NOSYS | Errno::PERM => {
            // Another file tells whether the kernel or this file is the reason.
            let refusal = match try_out() {
                Err(Attempt::Refused(refusal)) => refusal,
                _ => refusal::file(Backend::Heap, task, errno),
            };
            refusal.into()
        }
        // The kernel does not report how far the read got.
        _ => task.failed(task.offset, errno).into(),
    }
}

/// Loads the start of a file that every process has.
fn try_out() -> Result<(), Attempt> {
    let device = system_heap::open(Backend::Heap)?;
    let sample = Sample::open(Backend::Heap)?;
    let len = sample.content.len() as u64;
    let (fd, read) =
        heap::alloc_read_file(device.as_fd(), len, sample.fd.as_fd(), 0).map_err(|errno| {
            match errno {
                Errno::NOMEM => {
                    Error::NoMemory { wanted: len, available: None, reserve: None }.into()
                }
                _ => Attempt::from(refuse_flag(errno)),
            }
        })?;
    let buf = Shared::from_parts(fd, len.next_multiple_of(page_size()));
    // A kernel with another meaning for the flag reads nothing.
    if read == len && sample.is_in(&buf)? { Ok(()) } else { Err(refuse_flag(Errno::INVAL).into()) }
}

fn refuse_flag(errno: Errno) -> Refusal {
    let refusal = match errno {
        Errno::INVAL | Errno::NOTTY | Errno::NOSYS => {
            Backend::Heap.refuse("the heaps of this kernel cannot read files").remedy(SERIES)
        }
        Errno::OPNOTSUPP => {
            Backend::Heap.refuse("the system heap of this kernel cannot read files").remedy(SERIES)
        }
        _ => Backend::Heap
            .refuse(format!("{} cannot read a file", heap::SYSTEM))
            .remedy("see dmesg for details"),
    };
    refusal.errno(errno)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_missing_features_suggest_another_kernel() {
        for (errno, missing) in [
            (Errno::INVAL, true),
            (Errno::OPNOTSUPP, true),
            (Errno::IO, false),
            (Errno::PERM, false),
        ] {
            let refusal = refuse_flag(errno);
            assert_eq!(refusal.errno, Some(errno));
            assert_eq!(refusal.remedy.as_deref() == Some(SERIES), missing, "{refusal:?}");
        }
    }

    #[test]
    fn storage_reads_of_a_thread_are_counted() {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        if std::path::Path::new("/proc/self/io").exists() {
            assert!(asked_of_storage(thread).is_some());
        }
        assert_eq!(asked_of_storage(0), None);
    }
}
