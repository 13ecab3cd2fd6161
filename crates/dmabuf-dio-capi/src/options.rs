// SPDX-License-Identifier: MIT OR Apache-2.0
//! Settings of transfers.

use std::ffi::{c_int, c_void};
use std::mem::size_of;

use dmabuf_dio::gather::Gatherer;
use dmabuf_dio::{CancelToken, Loader, Progress, Saver};

use crate::failure::{Failure, Outcome};
use crate::names;
use crate::sized::{self, Grows};

/// Settings of every transfer.
macro_rules! common {
    ($options:expr, $transfer:expr) => {{
        let options = $options;
        let mut transfer = $transfer
            .backend(names::backend(options.backend)?)
            .direct(options.flags & DMABUF_DIO_BUFFERED == 0);
        if options.queue_depth != 0 {
            transfer = transfer.queue_depth(options.queue_depth);
        }
        if let Some((watch, token)) = options.watch() {
            transfer = transfer.progress(watch).cancel(token);
        }
        transfer
    }};
}

/// The options of both loads and saves.
macro_rules! blocks {
    ($options:expr, $transfer:expr) => {
        match $options.block_size {
            0 => $transfer,
            size => $transfer.block_size(size),
        }
    };
}

/// Flag of a transfer: through the page cache, not by `O_DIRECT`.
pub const DMABUF_DIO_BUFFERED: u32 = 1;
/// Flag of a load: does not try for huge pages in memory that the library allocates itself.
pub const DMABUF_DIO_SMALL_PAGES: u32 = 2;
/// Flag of a gather: polls for completions, where the disk has poll queues.
pub const DMABUF_DIO_POLLED: u32 = 4;
/// Flag of a load: locks the memory of the new buffer, so that it is never swapped out (mlock(2)). The lock of a memfd
/// lasts as long as the buffer is held by this process: neither the descriptor alone nor another process keeps it.
/// Dma-bufs and reserved huge pages are never swapped out: nothing is locked for them.
pub const DMABUF_DIO_LOCK: u32 = 8;

/// Receives the progress of a transfer: how many bytes of the total have moved, and the pointer from
/// the options. Return 0 to continue; any other number ends the transfer with `-ECANCELED`, unless it
/// is already complete.
///
/// Called once at the start, then at least every 100 ms while data moves. The calls may come from
/// another thread, but never two at a time; the count never decreases. The function must return
/// normally, not by an exception or longjmp(3). A child that it forks must not return from it.
pub type ProgressCallback =
    Option<unsafe extern "C" fn(done: u64, total: u64, data: *mut c_void) -> c_int>;

/// Settings of a transfer. Zero in all fields except `size` means the defaults, as does a null pointer
/// in place of the structure. Can grow: see `size`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// `sizeof(struct dmabuf_dio_options)`. Missing fields of a smaller structure count as 0; a
    /// larger one, up to 4096 bytes, is accepted if the fields that this version does not know are
    /// 0, else `-E2BIG`.
    pub size: usize,
    /// Use only this backend: `DMABUF_DIO_BACKEND_*`.
    pub backend: u32,
    /// Kind of the buffer that a load creates: `DMABUF_DIO_KIND_*`. Loads into a new buffer only.
    pub kind: u32,
    /// `DMABUF_DIO_BUFFERED`, `DMABUF_DIO_SMALL_PAGES`, `DMABUF_DIO_LOCK`, `DMABUF_DIO_POLLED`.
    pub flags: u32,
    /// Requests in flight: 1 to 1024; 0: the default.
    pub queue_depth: u32,
    /// Start of the range in the file, in bytes. Must be 0 for gathers.
    pub offset: u64,
    /// Length of the range in bytes; 0: up to the end of the file. Loads only: the length of a save is
    /// an argument.
    pub length: u64,
    /// Bytes per request: a multiple of the page size, at most 1 GiB; 0: the default. Must be 0
    /// for gathers.
    pub block_size: u64,
    /// Memory to allocate at a time, in bytes: a multiple of the page size, at most 1 GiB; 0: the
    /// default. Loads into a new buffer only.
    pub allocation_step: u64,
    /// Receives the progress, and may cancel the transfer; a null pointer: no callback.
    pub progress: ProgressCallback,
    /// Passed to `progress`.
    pub progress_data: *mut c_void,
    /// The NUMA nodes that the buffer's memory is to be on: `DMABUF_DIO_NUMA_*`; 0: left open. Loads into a
    /// new buffer only.
    pub numa: u32,
    /// With `DMABUF_DIO_NUMA_NODE`: the number of the node; otherwise 0.
    pub numa_node: u32,
}

// SAFETY: words in the order of C, without padding; a null function pointer is `None`.
unsafe impl Grows for Options {
    const NAME: &'static str = "dmabuf_dio_options";
    const FIRST: usize = 72;
}

const _: () = assert!(size_of::<Options>() >= Options::FIRST);

/// The kind of a transfer, which decides the settings that it accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Load,
    LoadInto,
    Save,
    Gather,
}

impl Options {
    const DEFAULT: Self = Self {
        size: size_of::<Self>(),
        backend: 0,
        kind: 0,
        flags: 0,
        queue_depth: 0,
        offset: 0,
        length: 0,
        block_size: 0,
        allocation_step: 0,
        progress: None,
        progress_data: std::ptr::null_mut(),
        numa: 0,
        numa_node: 0,
    };

    /// # Safety
    ///
    /// Null, or a structure as long as it says.
    pub(crate) unsafe fn read(from: *const Self, of: Use) -> Outcome<Self> {
        if from.is_null() {
            return Ok(Self::DEFAULT);
        }
        // SAFETY: as the caller promises.
        let options: Self = unsafe { sized::read(from) }?;
        options.check(of)?;
        Ok(options)
    }

    /// Settings that have no meaning here are refused: a caller that sets them expects an effect.
    fn check(&self, of: Use) -> Outcome<()> {
        let loads = matches!(of, Use::Load | Use::LoadInto);
        let flags = match of {
            Use::Load => DMABUF_DIO_BUFFERED | DMABUF_DIO_SMALL_PAGES | DMABUF_DIO_LOCK,
            Use::LoadInto | Use::Save => DMABUF_DIO_BUFFERED,
            Use::Gather => DMABUF_DIO_BUFFERED | DMABUF_DIO_POLLED,
        };
        let what = match of {
            Use::Load => "a load",
            Use::LoadInto => "a load into a buffer",
            Use::Save => "a save",
            Use::Gather => "a gather",
        };
        let extra = [
            ("flags", u64::from(self.flags & !flags), false),
            ("kind", self.kind.into(), of == Use::Load),
            ("offset", self.offset, of != Use::Gather),
            ("length", self.length, loads),
            ("block_size", self.block_size, of != Use::Gather),
            ("allocation_step", self.allocation_step, of == Use::Load),
            ("numa", self.numa.into(), of == Use::Load),
            ("numa_node", self.numa_node.into(), self.numa == names::DMABUF_DIO_NUMA_NODE),
        ];
        for (name, value, has) in extra {
            if !has && value != 0 {
                return Err(Failure::invalid(
                    format!("{what} has no such setting: {name} {value:#x}"),
                    format!("leave {name} at 0"),
                ));
            }
        }
        Ok(())
    }

    pub(crate) fn load<'f>(&self, loader: Loader<'f>) -> Outcome<Loader<'f>> {
        let loader = self.range(loader)?;
        let loader = loader.kind(names::kind_of(self.kind)?);
        let loader = match self.allocation_step {
            0 => loader,
            step => loader.allocation_step(step),
        };
        let loader = loader.numa(names::numa(self.numa, self.numa_node)?);
        let loader = loader.lock(self.flags & DMABUF_DIO_LOCK != 0);
        Ok(loader.huge_pages(self.flags & DMABUF_DIO_SMALL_PAGES == 0))
    }

    /// Whether memory that is kept already is what a load asks for.
    pub(crate) fn takes_kept(&self) -> bool {
        let kinds = [0, names::DMABUF_DIO_KIND_MEMFD, names::DMABUF_DIO_KIND_FILE];
        kinds.contains(&self.kind)
            && [self.backend, self.numa, self.flags & DMABUF_DIO_LOCK] == [0; 3]
            && [self.offset, self.length] == [0; 2]
    }

    /// The settings of a load into an existing buffer.
    pub(crate) fn range<'f>(&self, loader: Loader<'f>) -> Outcome<Loader<'f>> {
        let mut loader = common!(self, loader).offset(self.offset);
        if self.length != 0 {
            loader = loader.length(self.length);
        }
        Ok(blocks!(self, loader))
    }

    pub(crate) fn save<'f>(&self, saver: Saver<'f>) -> Outcome<Saver<'f>> {
        let saver = common!(self, saver).offset(self.offset);
        Ok(blocks!(self, saver))
    }

    pub(crate) fn gather<'f>(&self, gatherer: Gatherer<'f>) -> Outcome<Gatherer<'f>> {
        Ok(common!(self, gatherer).polled(self.flags & DMABUF_DIO_POLLED != 0))
    }

    /// The callback, and the token by which it cancels.
    fn watch(&self) -> Option<(impl Fn(Progress) + Send + Sync + use<>, CancelToken)> {
        let callback = Callback { call: self.progress?, data: self.progress_data };
        let token = CancelToken::new();
        let cancel = token.clone();
        let watch = move |progress: Progress| {
            if callback.goes_on(progress) {
                return;
            }
            cancel.cancel();
        };
        Some((watch, token))
    }
}

/// A function of the caller, and its pointer.
struct Callback {
    call: unsafe extern "C" fn(u64, u64, *mut c_void) -> c_int,
    data: *mut c_void,
}

// SAFETY: the header says that calls may come from another thread.
unsafe impl Send for Callback {}
// SAFETY: as above; they never come two at a time.
unsafe impl Sync for Callback {}

impl Callback {
    fn goes_on(&self, progress: Progress) -> bool {
        // SAFETY: the caller's function, with the pointer that belongs to it.
        unsafe { (self.call)(progress.done, progress.total, self.data) == 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_without_effect_are_refused() {
        let kind = Options { kind: names::DMABUF_DIO_KIND_MEMFD, ..Options::DEFAULT };
        assert!(kind.check(Use::Load).is_ok());
        for of in [Use::LoadInto, Use::Save, Use::Gather] {
            assert_eq!(kind.check(of).map_err(|error| error.errno), Err(libc::EINVAL));
        }
        let polled = Options { flags: DMABUF_DIO_POLLED, ..Options::DEFAULT };
        assert!(polled.check(Use::Gather).is_ok() && polled.check(Use::Load).is_err());
        let node = Options { numa_node: 1, ..Options::DEFAULT };
        assert!(node.check(Use::Load).is_err(), "its numa is another");
        let node = Options { numa: names::DMABUF_DIO_NUMA_NODE, ..node };
        assert!(node.check(Use::Load).is_ok() && node.check(Use::LoadInto).is_err());
        let lock = Options { flags: DMABUF_DIO_LOCK, ..Options::DEFAULT };
        assert!(lock.check(Use::Load).is_ok() && lock.check(Use::LoadInto).is_err());
        let length = Options { length: 1, ..Options::DEFAULT };
        assert!(length.check(Use::LoadInto).is_ok() && length.check(Use::Save).is_err());
    }
}
