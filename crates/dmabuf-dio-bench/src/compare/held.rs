// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory that a method has filled.

use super::contract::PagesGot;
use super::pages;
use crate::buffer::Buffer;
use crate::buffer::mapping::Mapping;
use crate::measure::outcome::{Status, Trouble};

/// The content of the file, kept until this is dropped.
#[derive(Debug)]
pub(crate) enum Held {
    Library(dmabuf_dio::Buffer),
    Vec(Vec<u8>),
    /// A buffer, and the mappings used to fill it.
    Buffer(Buffer, Vec<Mapping>),
    /// A mapping of the file, or anonymous memory.
    Mapping(Mapping),
}

impl Held {
    /// How many bytes of a file of `len` bytes it holds.
    pub(crate) fn len(&self, len: u64) -> u64 {
        match self {
            Self::Library(loaded) => loaded.data_len(),
            Self::Vec(bytes) => bytes.len() as u64,
            // These are made for the whole file, and filling them fails before it ends.
            Self::Buffer(..) | Self::Mapping(_) => len,
        }
    }

    /// Passes the bytes of the file to `look`.
    pub(crate) fn look<T>(&self, len: u64, what: impl FnOnce(&[u8]) -> T) -> Result<T, Trouble> {
        match self {
            Self::Library(loaded) => {
                let failed = |error: dmabuf_dio::Error| Trouble {
                    status: Status::Failed,
                    reason: error.to_string(),
                    errno: error.errno(),
                };
                let view = loaded.map().map_err(failed)?;
                let range = loaded.range();
                // SAFETY: the buffer is this process's own, and nothing is being moved now.
                let bytes = unsafe { view.as_slice() };
                let result = what(&bytes[range.start as usize..range.end as usize]);
                view.finish().map_err(failed)?;
                Ok(result)
            }
            Self::Vec(bytes) => Ok(what(bytes)),
            Self::Buffer(buffer, _) => buffer.look(|bytes| what(&bytes[..len as usize])),
            // SAFETY: the memory is this process's own; nobody else knows the file.
            Self::Mapping(mapping) => Ok(what(&unsafe { mapping.content() }[..len as usize])),
        }
    }

    /// Its page sizes, if known.
    pub(crate) fn pages(&self, len: u64) -> Option<PagesGot> {
        match self {
            Self::Library(loaded) => {
                let pages = loaded.page_sizes()?;
                let huge_bytes = pages.huge_bytes.min(len);
                Some(PagesGot { page_size: pages.page_size, huge_bytes })
            }
            Self::Vec(bytes) => pages::got(bytes.as_ptr(), len),
            // Of a dma-buf the process does not see them.
            Self::Buffer(buffer, _) if buffer.is_dmabuf() => None,
            Self::Buffer(_, mappings) => pages::got(mappings.first()?.address(), len),
            Self::Mapping(mapping) => pages::got(mapping.address(), len),
        }
    }
}
