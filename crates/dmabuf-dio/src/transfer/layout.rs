// SPDX-License-Identifier: MIT OR Apache-2.0
//! The position of a range in a buffer that is created for it.

use crate::buffer::shared::Shared;
use crate::error::Error;
use crate::memory::page::{page_size, round_up};

/// The layout of a buffer that is created for a range: the range's offset in the buffer is
/// congruent to its offset in the file, so that direct I/O moves only whole blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Offset of the range in the buffer.
    pub(crate) data_offset: u64,
    /// Length of the buffer.
    pub(crate) buffer: u64,
    /// Offset in the file of the buffer's first byte.
    pub(crate) base: u64,
}

impl Layout {
    pub(crate) fn new(offset: u64, length: u64, file_align: u64) -> Result<Self, Error> {
        let unit = page_size().max(file_align);
        let base = offset / unit * unit;
        let data_offset = offset - base;
        let buffer = data_offset
            .checked_add(length)
            .and_then(|end| round_up(end, unit))
            .filter(|buffer| {
                base.checked_add(*buffer).is_some_and(|end| i64::try_from(end).is_ok())
            })
            .ok_or(Error::RangeOverflow { offset, length })?;
        Ok(Self { data_offset, buffer, base })
    }

    /// Zeroes the bytes before the range, which were read along with its first page.
    pub(crate) fn zero_before(&self, buf: &mut Shared) -> Result<(), Error> {
        if self.data_offset == 0 {
            return Ok(());
        }
        let mut view = buf.map_mut()?;
        view.fill_at(0, self.data_offset, 0)?;
        view.finish()
    }

    /// The layout of a buffer that starts with the range, wherever that is in the file. Direct I/O
    /// then needs an offset that is a multiple of `file_align`.
    pub(crate) fn at_start(offset: u64, length: u64, file_align: u64) -> Result<Self, Error> {
        let moved = Self::new(0, length, file_align)?;
        let end = offset.checked_add(moved.buffer).filter(|end| i64::try_from(*end).is_ok());
        end.ok_or(Error::RangeOverflow { offset, length })?;
        Ok(Self { base: offset, ..moved })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_is_congruent_to_the_file() {
        let page = page_size();
        let layout = Layout::new(page + 904, 100, 512).expect("fits");
        assert_eq!(layout, Layout { data_offset: 904, buffer: page, base: page });
        let layout = Layout::new(2 * page, page + 1, 512).expect("fits");
        assert_eq!(layout, Layout { data_offset: 0, buffer: 2 * page, base: 2 * page });
        let block = 16 * page;
        let layout = Layout::new(block + 4464, 1, block).expect("fits");
        assert_eq!(layout, Layout { data_offset: 4464, buffer: block, base: block });
        assert!(Layout::new(u64::MAX - 5, 5, 512).is_err());
        assert!(Layout::new(0, u64::MAX, 512).is_err());
        assert!(Layout::new(i64::MAX as u64, 1, 512).is_err());
    }

    #[test]
    fn range_can_be_at_the_start_of_the_buffer() {
        let page = page_size();
        let layout = Layout::at_start(page + 904, page + 1, 512).expect("fits");
        assert_eq!(layout, Layout { data_offset: 0, buffer: 2 * page, base: page + 904 });
        let aligned = Layout::at_start(2 * page, 100, 512).expect("fits");
        assert_eq!(aligned, Layout::new(2 * page, 100, 512).expect("fits"));
        assert!(Layout::at_start(i64::MAX as u64, 1, 512).is_err());
        assert!(Layout::at_start(u64::MAX, 1, 512).is_err());
        assert!(Layout::at_start(0, u64::MAX, 512).is_err());
    }
}
