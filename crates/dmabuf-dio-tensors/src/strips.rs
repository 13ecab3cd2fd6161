// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bytes of a part of a tensor: ranges of the file, in the order of the part's elements.

use std::ops::Range;

use crate::tensor::Tensor;

/// Ranges of a file, of which a part of a tensor consists. They ascend and are disjoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Strips {
    /// The offset of the tensor in the file.
    start: u64,
    /// The dimensions outside of a strip.
    outer: Vec<Axis>,
    /// The strips of one element of those, in bytes.
    inner: Vec<Range<u64>>,
    count: u64,
}

/// The elements that are taken in a dimension.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Axis {
    /// Ranges that ascend, each with the number of elements before it: there may be many.
    ranges: Vec<(u64, Range<u64>)>,
    taken: u64,
    /// The bytes from one element to the next.
    stride: u64,
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
        let axis = |dim: usize| Some(Axis::new(&ranges[dim], bytes(stride(dim))?));
        let outer = (0..cut).map(axis).collect::<Option<Vec<_>>>()?;
        let count = outer.iter().map(|axis| axis.taken).product::<u64>() * inner.len() as u64;
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
        for axis in self.outer.iter().rev() {
            at += axis.element(left % axis.taken) * axis.stride;
            left /= axis.taken;
        }
        at + strip.start..at + strip.end
    }

    /// The most bytes between two strips that follow each other.
    pub(crate) fn widest_gap(&self) -> u64 {
        let between = self.inner.windows(2).map(|pair| pair[1].start - pair[0].end);
        let mut widest = between.max().unwrap_or(0);
        let ends = self.inner.first().zip(self.inner.last());
        let (mut start, mut end) = ends.map_or((0, 0), |(first, last)| (first.start, last.end));
        for axis in self.outer.iter().rev() {
            // Everything from `start` to `end` is repeated for each element.
            if let Some(step) = axis.widest_step() {
                widest = widest.max(step * axis.stride - (end - start));
            }
            start += axis.element(0) * axis.stride;
            end += axis.element(axis.taken - 1) * axis.stride;
        }
        widest
    }
}

impl Axis {
    /// Takes the elements of ranges, which are not empty.
    fn new(ranges: &[Range<u64>], stride: u64) -> Self {
        let mut taken = 0;
        let with_place = |range: &Range<u64>| {
            let before = taken;
            taken += range.end - range.start;
            (before, range.clone())
        };
        let ranges = ranges.iter().map(with_place).collect();
        Self { ranges, taken, stride }
    }

    /// The element at a place among those that are taken.
    fn element(&self, number: u64) -> u64 {
        let place = self.ranges.partition_point(|(before, _)| *before <= number).saturating_sub(1);
        self.ranges.get(place).map_or(0, |(before, range)| range.start + (number - before))
    }

    /// The most elements from one that is taken to the next.
    fn widest_step(&self) -> Option<u64> {
        let within = self.ranges.iter().any(|(_, range)| range.end - range.start > 1);
        let between = self.ranges.windows(2).map(|pair| pair[1].1.start - pair[0].1.end + 1);
        between.max().or(within.then_some(1))
    }
}
