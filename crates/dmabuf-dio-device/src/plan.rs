// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is read into one block, and where it is copied to.

use std::fs::File;
use std::ops::Range;

use crate::device::DeviceMemory;
use crate::error::{Error, Result};

/// Reading so many bytes between two places costs as little as another request.
const GAP: u64 = 256 << 10;

/// A range of a file, and where it belongs in a device's memory.
#[derive(Clone, Debug)]
pub struct Place<'f> {
    file: &'f File,
    range: Range<u64>,
    address: u64,
}

impl<'f> Place<'f> {
    /// A range of a file, and its place in memory of a device: `at` bytes from its start.
    ///
    /// # Errors
    ///
    /// [`Error::NoPlace`] if the range is reversed or exceeds the memory.
    pub fn new(
        file: &'f File,
        range: Range<u64>,
        memory: &'f DeviceMemory,
        at: u64,
    ) -> Result<Self> {
        let length = range.end.checked_sub(range.start);
        let end = length.and_then(|length| at.checked_add(length));
        if end.is_none_or(|end| end > memory.len()) {
            let length = length.unwrap_or(0);
            return Err(Error::NoPlace { offset: range.start, length, at, room: memory.len() });
        }
        Ok(Self { file, range, address: memory.address() + at })
    }

    /// A range of a file, and an address in memory of a device, such as that of a framework's tensor.
    ///
    /// # Safety
    ///
    /// The bytes of the range, from `address` on, are memory of the device that nothing else uses until the load is
    /// over, except work of the stream that the load is to wait for.
    pub unsafe fn at_address(file: &'f File, range: Range<u64>, address: u64) -> Self {
        let range = range.start..range.end.max(range.start);
        Self { file, range, address }
    }
}

/// A range of a file that is read into one block.
#[derive(Debug)]
pub(crate) struct Read<'f> {
    pub(crate) file: &'f File,
    pub(crate) range: Range<u64>,
    pub(crate) copies: Vec<Copy>,
}

/// Bytes of a read that are copied to the device.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Copy {
    /// In the file.
    pub(crate) range: Range<u64>,
    pub(crate) address: u64,
}

/// The reads for places, of at most `most` bytes each. Places that follow each other in a file share them.
pub(crate) fn reads<'f>(places: &[Place<'f>], most: u64) -> Vec<Read<'f>> {
    let mut reads: Vec<Read<'f>> = Vec::new();
    for place in places {
        let mut at = place.range.start;
        while at < place.range.end {
            let joins = |read: &&mut Read<'f>| {
                std::ptr::eq(read.file, place.file)
                    && at >= read.range.end
                    && at - read.range.end <= GAP
                    && at - read.range.start < most
            };
            let address = place.address + (at - place.range.start);
            if let Some(read) = reads.last_mut().filter(joins) {
                let end = place.range.end.min(read.range.start.saturating_add(most));
                read.range.end = end;
                read.copies.push(Copy { range: at..end, address });
                at = end;
            } else {
                let end = place.range.end.min(at.saturating_add(most));
                let copies = vec![Copy { range: at..end, address }];
                reads.push(Read { file: place.file, range: at..end, copies });
                at = end;
            }
        }
    }
    reads
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_share_reads_and_long_places_have_several() {
        let (one, other) =
            (File::open("/dev/null").expect("a file"), File::open("/").expect("a file"));
        // SAFETY: nothing is copied.
        let place = |file, range, address| unsafe { Place::at_address(file, range, address) };
        let places = [
            place(&one, 5..10, 100),
            place(&one, 12..12, 1),
            place(&one, 12..50, 200),
            place(&one, 0..3, 300),
            place(&one, (1 << 20)..(1 << 20) + 1, 400),
            place(&other, (1 << 20) + 1..(1 << 20) + 2, 500),
        ];
        let reads = reads(&places, 20);
        let found: Vec<_> = reads
            .iter()
            .map(|read| {
                let copies: Vec<_> =
                    read.copies.iter().map(|copy| (copy.range.clone(), copy.address)).collect();
                (read.range.clone(), copies)
            })
            .collect();
        let mib = 1 << 20;
        assert_eq!(
            found,
            [
                (5..25, vec![(5..10, 100), (12..25, 200)]),
                (25..45, vec![(25..45, 213)]),
                (45..50, vec![(45..50, 233)]),
                (0..3, vec![(0..3, 300)]),
                (mib..mib + 1, vec![(mib..mib + 1, 400)]),
                (mib + 1..mib + 2, vec![(mib + 1..mib + 2, 500)]),
            ]
        );
        assert!(std::ptr::eq(reads[5].file, &raw const other));
    }
}
