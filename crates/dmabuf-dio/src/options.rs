// SPDX-License-Identifier: MIT OR Apache-2.0
//! Settings common to loading and saving.

use crate::backend::Backend;
use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::memory::Mapping;
use crate::memory::available::{self, Charged};
use crate::memory::lock;
use crate::memory::page::page_size;
use crate::memory::place::{self, Place};
use crate::numa::Numa;

const MAX_CHUNK: u64 = 1 << 30;
const MAX_DEPTH: u32 = 1024;
const MAX_STEP: u64 = 1 << 30;

/// The settings of a transfer, as plain data: see the methods of [`Loader`](crate::Loader) of the same
/// names. `None` is the default.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "to be written with ..Options::default()")]
#[allow(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
pub struct Options {
    /// Uses only this backend; default: the best that is available.
    pub backend: Option<Backend>,
    /// The kind of buffer that a load creates; other transfers ignore it.
    pub kind: Kind,
    /// Bytes per request.
    pub block_size: Option<u64>,
    /// Requests in flight.
    pub queue_depth: Option<u32>,
    /// Bytes of memory that a load allocates at a time.
    pub allocation_step: Option<u64>,
    /// Whether to try `O_DIRECT`.
    pub direct: bool,
    /// Whether a load tries for huge pages.
    pub huge_pages: bool,
    /// The NUMA nodes of the buffer that a load creates; other transfers ignore it.
    pub numa: Option<Numa>,
    /// Whether the buffer that a load creates is locked in memory; other transfers ignore it.
    pub lock: bool,
    /// Whether the report of a load says which pages its memory has, and on which nodes. For that the kernel walks
    /// all mappings of the process: that takes 15 ms in one that has imported torch. [`Buffer::page_sizes`] does it later.
    ///
    /// [`Buffer::page_sizes`]: crate::Buffer::page_sizes
    pub reports_pages: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            backend: None,
            kind: Kind::Any,
            block_size: None,
            queue_depth: None,
            allocation_step: None,
            direct: true,
            huge_pages: true,
            numa: None,
            lock: false,
            reports_pages: true,
        }
    }
}

impl Options {
    /// The backends of `order` to try: all, or only the selected one.
    pub(crate) fn backends<'a>(&'a self, order: &'a [Backend]) -> &'a [Backend] {
        self.backend.as_ref().map_or(order, std::slice::from_ref)
    }

    /// Where the memory of a new buffer of `len` bytes is to be, if something was asked for. To be called
    /// in the thread that allocates it.
    pub(crate) fn place(&self, len: u64) -> Result<Option<Place>> {
        let place = Place::of(self.numa)?;
        place.map_or(Ok(()), |place| place.ensure(len))?;
        Ok(place)
    }

    /// Fails early if a buffer of `len` bytes is to be locked and cannot be.
    pub(crate) fn check_lock(&self, len: u64) -> Result<()> {
        if self.lock { lock::check(len) } else { Ok(()) }
    }

    /// Private memory of `len` bytes for a new buffer, in the place that was asked for. `plain` gets it where none was,
    /// and nothing is to be locked.
    pub(crate) fn private_memory(
        &self,
        len: u64,
        plain: fn(u64) -> Result<Mapping>,
    ) -> Result<Mapping> {
        available::ensure(len, Charged::Us)?;
        let place = self.place(len)?;
        self.check_lock(len)?;
        // Memory of the allocator shares pages, which have a place already, and stay locked.
        let own = len > 0 && (place.is_some() || self.lock);
        let map = || if own { Mapping::mapped(len) } else { plain(len) };
        let mapping = place::mapped(place.as_ref(), map)?;
        mapping.advise(self.huge_pages);
        Ok(mapping)
    }

    pub(crate) fn check(&self) -> Result<()> {
        let sizes = [
            (
                "block_size",
                self.block_size,
                MAX_CHUNK,
                "a multiple of the page size, at most 1 GiB",
            ),
            (
                "allocation_step",
                self.allocation_step,
                MAX_STEP,
                "a multiple of the page size, at most 1 GiB",
            ),
        ];
        for (name, value, max, need) in sizes {
            let is_bad = |value: &u64| *value == 0 || *value > max || value % page_size() != 0;
            if let Some(value) = value.filter(is_bad) {
                return Err(Error::Setting { name, value, need });
            }
        }
        match self.queue_depth {
            Some(queue_depth) if queue_depth == 0 || queue_depth > MAX_DEPTH => {
                Err(Error::Setting {
                    name: "queue_depth",
                    value: queue_depth.into(),
                    need: "from 1 to 1024",
                })
            }
            _ => Ok(()),
        }
    }
}

/// The builder methods common to all transfers.
macro_rules! transfer_methods {
    () => {
        /// Uses only this backend. With `None` (the default) the best available backend is used.
        #[must_use]
        pub fn backend(mut self, backend: impl Into<Option<crate::Backend>>) -> Self {
            self.options.backend = backend.into();
            self
        }

        /// Whether to try `O_DIRECT`; default: true.
        #[must_use]
        pub fn direct(mut self, direct: bool) -> Self {
            self.options.direct = direct;
            self
        }

        /// Reports progress: once at the start, then at least every 100 ms while data moves. Calls
        /// may come from another thread, but never concurrently; the count never decreases.
        /// A child that it forks must not return from it.
        #[must_use]
        pub fn progress(
            mut self,
            callback: impl Fn(crate::Progress) + Send + Sync + 'static,
        ) -> Self {
            self.control.progress = Some(std::sync::Arc::new(callback));
            self
        }

        /// The token that cancels the transfer.
        #[must_use]
        pub fn cancel(mut self, token: crate::CancelToken) -> Self {
            self.control.cancel = token;
            self
        }
    };
}

/// The builder methods common to [`Loader`](crate::Loader) and [`Saver`](crate::Saver).
macro_rules! option_methods {
    () => {
        crate::options::transfer_methods!();

        /// All settings at once, in place of those made so far.
        #[must_use]
        pub fn options(mut self, options: crate::Options) -> Self {
            self.options = options;
            self
        }

        /// Bytes per request: a multiple of the page size, at most 1 GiB. The default is 4 MiB,
        /// rounded up to a multiple of the disk's optimal I/O size. The module has its own default,
        /// `copy_file_range` adapts the size of each call to the time it takes, and the system heap
        /// makes a single request.
        #[must_use]
        pub fn block_size(mut self, bytes: u64) -> Self {
            self.options.block_size = Some(bytes);
            self
        }

        /// Requests in flight: 1 to 1024. The default keeps 32 MiB in flight. The module has its
        /// own default; the system heap and `copy_file_range` leave it to the kernel.
        #[must_use]
        pub fn queue_depth(mut self, requests: u32) -> Self {
            self.options.queue_depth = Some(requests);
            self
        }
    };
}

pub(crate) use {option_methods, transfer_methods};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_options_leave_everything_unset() {
        let Options {
            backend,
            kind,
            block_size,
            queue_depth,
            allocation_step,
            direct,
            huge_pages,
            numa,
            lock,
            reports_pages,
        } = Options::default();
        assert_eq!(kind, Kind::Any);
        assert_eq!((backend, block_size, queue_depth, allocation_step), (None, None, None, None));
        assert!(direct && huge_pages && reports_pages && !lock && numa.is_none());
        assert!(Options::default().check().is_ok());
    }

    #[test]
    fn settings_are_checked() {
        let page = page_size();
        let ok = Options { block_size: Some(page), queue_depth: Some(1024), ..Options::default() };
        assert!(ok.check().is_ok());
        for block_size in [0, 1, page + 1, MAX_CHUNK + page] {
            let options = Options { block_size: Some(block_size), ..Options::default() };
            assert!(matches!(options.check(), Err(Error::Setting { name: "block_size", .. })));
        }
        for allocation_step in [0, 1, page - 1, MAX_STEP + page] {
            let options = Options { allocation_step: Some(allocation_step), ..Options::default() };
            assert!(matches!(options.check(), Err(Error::Setting { name: "allocation_step", .. })));
        }
        let largest = Options {
            block_size: Some(1 << 30),
            allocation_step: Some(1 << 30),
            ..Options::default()
        };
        assert!(largest.check().is_ok());
        let least = Options {
            block_size: Some(page),
            queue_depth: Some(1),
            allocation_step: Some(page),
            ..Options::default()
        };
        assert!(least.check().is_ok());
        for queue_depth in [0, 1025] {
            let options = Options { queue_depth: Some(queue_depth), ..Options::default() };
            assert!(matches!(options.check(), Err(Error::Setting { name: "queue_depth", .. })));
        }
    }
}
