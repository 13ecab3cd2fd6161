// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bytes of a part of a tensor: ranges of the file, in the order of the part's elements.

use std::ops::Range;

use crate::tensor::Tensor;

/// Ranges of a file, of which a part of a tensor consists. They ascend and are disjoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Strips {
    /// The offset of the tensor in the file.
    start: u64,
    /// The dimensions outside of a strip: the elements taken, and the bytes from one to the next.
    outer: Vec<(Vec<Range<u64>>, u64)>,
    /// The strips of one element of those, in bytes.
    inner: Vec<Range<u64>>,
    count: u64,
}

impl Strips {
    /// The strips of the elements that `ranges` has for each dimension of the tensor. `None` if they
    /// are not whole blocks.
    pub(crate) fn new(tensor: &Tensor, ranges: &[Vec<Range<u64>>]) -> Option<Self> {
        let block = tensor.dtype.block();
        let bytes = |elements: u64| {
            (elements % block.elements == 0).then(|| elements / block.elements * block.bytes)
        };
        // The innermost dimension of which not all is taken; everything within it is contiguous.
        let cut = |dim: &usize| !matches!(&ranges[*dim][..], [range] if *range == (0..tensor.shape[*dim]));
        let start = tensor.range.start;
        if ranges.iter().any(Vec::is_empty) || tensor.is_empty() {
            return Some(Self { start, outer: Vec::new(), inner: Vec::new(), count: 0 });
        }
        let Some(cut) = (0..tensor.shape.len()).rev().find(cut) else {
            let all = std::iter::once(0..tensor.len()).collect();
            return Some(Self { start, outer: Vec::new(), inner: all, count: 1 });
        };
        let stride = |dim: usize| tensor.shape[dim + 1..].iter().product::<u64>();
        let within = stride(cut);
        let strip =
            |range: &Range<u64>| Some(bytes(range.start * within)?..bytes(range.end * within)?);
        let inner = ranges[cut].iter().map(strip).collect::<Option<Vec<_>>>()?;
        let axis = |dim: usize| Some((ranges[dim].clone(), bytes(stride(dim))?));
        let outer = (0..cut).map(axis).collect::<Option<Vec<_>>>()?;
        let taken = |(ranges, _): &(Vec<Range<u64>>, u64)| {
            ranges.iter().map(|range| range.end - range.start).sum::<u64>()
        };
        let count = outer.iter().map(taken).product::<u64>() * inner.len() as u64;
        Some(Self { start, outer, inner, count })
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// From the first byte to the last.
    pub(crate) fn span(&self) -> Range<u64> {
        match self.count.checked_sub(1) {
            Some(last) => self.get(0).start..self.get(last).end,
            None => self.start..self.start,
        }
    }

    /// The strip at a place among all.
    pub(crate) fn get(&self, number: u64) -> Range<u64> {
        let each = self.inner.len() as u64;
        let strip = &self.inner[(number % each) as usize];
        let mut left = number / each;
        let mut at = self.start;
        for (ranges, stride) in self.outer.iter().rev() {
            let taken: u64 = ranges.iter().map(|range| range.end - range.start).sum();
            at += element(ranges, left % taken) * stride;
            left /= taken;
        }
        at + strip.start..at + strip.end
    }
}

/// The element with this number among those of ranges that have so many.
fn element(ranges: &[Range<u64>], mut number: u64) -> u64 {
    for range in ranges {
        let len = range.end - range.start;
        if number < len {
            return range.start + number;
        }
        number -= len;
    }
    0
}
