// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is read into one block, and where it is copied to.

use std::ops::Range;

use dmabuf_dio::Origin;

use crate::error::{Error, Result};
use crate::memory::DeviceMemory;

/// Reading so many bytes between two places costs as little as another request.
const GAP: u64 = 256 << 10;

/// Bytes of a file, of a content or of memory, and where they belong in a device's memory.
#[derive(Clone, Debug)]
pub struct Place<'f> {
    source: Source<'f>,
    range: Range<u64>,
    address: u64,
}

/// Where bytes come from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source<'f> {
    Origin(Origin<'f>),
    Bytes(&'f [u8]),
}

impl Source<'_> {
    fn is(self, other: Self) -> bool {
        match (self, other) {
            (Self::Origin(one), Self::Origin(other)) => one.is(other),
            (Self::Bytes(one), Self::Bytes(other)) => std::ptr::eq(one, other),
            _ => false,
        }
    }
}

impl<'f> Place<'f> {
    /// A range of an open file or of a content, and its place in memory of a device: `at` bytes from its start.
    ///
    /// # Errors
    ///
    /// [`Error::NoPlace`] if the range is reversed or exceeds the memory.
    pub fn new(
        origin: impl Into<Origin<'f>>,
        range: Range<u64>,
        memory: &'f DeviceMemory,
        at: u64,
    ) -> Result<Self> {
        Self::of(Source::Origin(origin.into()), range, memory, at)
    }

    /// Memory of the host, which the processor copies into the ring, and its place in memory of a device: `at` bytes
    /// from its start.
    ///
    /// # Errors
    ///
    /// [`Error::NoPlace`] if it exceeds the device's memory.
    pub fn of_bytes(bytes: &'f [u8], memory: &'f DeviceMemory, at: u64) -> Result<Self> {
        Self::of(Source::Bytes(bytes), 0..bytes.len() as u64, memory, at)
    }

    fn of(
        source: Source<'f>,
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
        Ok(Self { source, range, address: memory.address() + at })
    }

    /// A range of an open file or of a content, and an address in memory of a device, such as that of a framework's tensor.
    ///
    /// # Safety
    ///
    /// The bytes of the range, from `address` on, are memory of the device that nothing else uses until the load is
    /// over, except work of the stream that the load is to wait for.
    pub unsafe fn at_address(
        origin: impl Into<Origin<'f>>,
        range: Range<u64>,
        address: u64,
    ) -> Self {
        let range = range.start..range.end.max(range.start);
        Self { source: Source::Origin(origin.into()), range, address }
    }
}

/// Bytes of one source that are read into one block.
#[derive(Debug)]
pub(crate) struct Read<'f> {
    pub(crate) source: Source<'f>,
    pub(crate) range: Range<u64>,
    pub(crate) copies: Vec<Copy>,
}

/// Bytes of a read that are copied to the device.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Copy {
    /// In the source.
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
                read.source.is(place.source)
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
                reads.push(Read { source: place.source, range: at..end, copies });
                at = end;
            }
        }
    }
    reads
}

#[cfg(test)]
mod tests {
    use std::fs::File;

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
        assert!(reads[5].source.is(Source::Origin((&other).into())));
    }
}
