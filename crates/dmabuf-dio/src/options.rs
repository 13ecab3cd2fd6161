// SPDX-License-Identifier: MIT OR Apache-2.0
//! Settings that loading and saving have in common.

use crate::backend::Backend;
use crate::control::Control;
use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::memory::page::page_size;

const MAX_CHUNK: u64 = 1 << 30;
const MAX_DEPTH: u32 = 1024;
const MAX_STEP: u64 = 1 << 30;

/// What the buffer of a load is to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// A dma-buf, or what the backend makes that is asked for.
    #[default]
    Unsaid,
    Only(Kind),
    /// A dma-buf where one can be made, else a memfd.
    Any,
}

#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) backend: Option<Backend>,
    pub(crate) kind: Wanted,
    pub(crate) block_size: Option<u64>,
    pub(crate) queue_depth: Option<u32>,
    pub(crate) allocation_step: Option<u64>,
    pub(crate) direct: bool,
    pub(crate) huge_pages: bool,
    pub(crate) control: Control,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            backend: None,
            kind: Wanted::Unsaid,
            block_size: None,
            queue_depth: None,
            allocation_step: None,
            direct: true,
            huge_pages: true,
            control: Control::default(),
        }
    }
}

impl Options {
    /// The backends to try of those in `order`: all, or the one that was asked for.
    pub(crate) fn backends<'a>(&'a self, order: &'a [Backend]) -> &'a [Backend] {
        self.backend.as_ref().map_or(order, std::slice::from_ref)
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

/// The builder methods that all who move bytes share.
macro_rules! transfer_methods {
    () => {
        /// Uses this backend and no other. Without it, or with `None`, the best one that works
        /// is used.
        #[must_use]
        pub fn backend(mut self, backend: impl Into<Option<crate::Backend>>) -> Self {
            self.options.backend = backend.into();
            self
        }

        /// Whether to try `O_DIRECT`, as is done if this is not set.
        #[must_use]
        pub fn direct(mut self, direct: bool) -> Self {
            self.options.direct = direct;
            self
        }

        /// Calls back with how far the transfer is: at its start, and then as bytes arrive, at
        /// least every 100 ms while they do. The calls may come from another thread, one at a
        /// time; the count never goes back.
        #[must_use]
        pub fn progress(
            mut self,
            callback: impl Fn(crate::Progress) + Send + Sync + 'static,
        ) -> Self {
            self.options.control.progress = Some(std::sync::Arc::new(callback));
            self
        }

        /// Lets this token stop the transfer.
        #[must_use]
        pub fn cancel(mut self, token: crate::CancelToken) -> Self {
            self.options.control.cancel = token;
            self
        }
    };
}

/// The builder methods that [`Loader`](crate::Loader) and [`Saver`](crate::Saver) share.
macro_rules! option_methods {
    () => {
        crate::options::transfer_methods!();

        /// Bytes per request: a multiple of the page size, at most 1 GiB. If not set, 4 MiB or
        /// as much more as makes it a multiple of what the disk likes; the module has its own
        /// default, and `copy_file_range` moves as much per call as time
        /// allows. The system heap makes one request of all.
        #[must_use]
        pub fn block_size(mut self, bytes: u64) -> Self {
            self.options.block_size = Some(bytes);
            self
        }

        /// Requests in flight: from 1 to 1024. If not set, enough for 32 MiB; the module has its
        /// own default. The
        /// system heap and `copy_file_range` leave that to the kernel.
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
    fn nobody_has_to_set_anything() {
        let Options {
            backend,
            kind,
            block_size,
            queue_depth,
            allocation_step,
            direct,
            huge_pages,
            control,
        } = Options::default();
        assert_eq!(kind, Wanted::Unsaid);
        assert_eq!((backend, block_size, queue_depth, allocation_step), (None, None, None, None));
        assert!(direct && huge_pages && control.progress.is_none());
        assert!(Options::default().check().is_ok());
    }

    #[test]
    fn settings_are_checked() {
        let ok = Options { block_size: Some(4096), queue_depth: Some(1024), ..Options::default() };
        assert!(ok.check().is_ok());
        for block_size in [0, 1, 4097, MAX_CHUNK + 4096] {
            let options = Options { block_size: Some(block_size), ..Options::default() };
            assert!(matches!(options.check(), Err(Error::Setting { name: "block_size", .. })));
        }
        for allocation_step in [0, 1, 4095, MAX_STEP + 4096] {
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
            block_size: Some(page_size()),
            queue_depth: Some(1),
            allocation_step: Some(page_size()),
            ..Options::default()
        };
        assert!(least.check().is_ok());
        for queue_depth in [0, 1025] {
            let options = Options { queue_depth: Some(queue_depth), ..Options::default() };
            assert!(matches!(options.check(), Err(Error::Setting { name: "queue_depth", .. })));
        }
    }
}
