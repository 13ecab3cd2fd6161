// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parts of tensors.

use std::ops::Range;

use crate::error::Result;
use crate::model::Model;
use crate::no_part::NoPart;
use crate::strips::Strips;
use crate::tensor::Tensor;

/// A part of a tensor of a model: in each dimension the elements of some ranges, by default all.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Part {
    number: usize,
    /// The dimensions that are not whole.
    taken: Vec<(usize, Vec<Range<u64>>)>,
}

impl Part {
    /// All of a tensor, by its place in [`Model::tensors`](crate::Model::tensors).
    pub fn whole(number: usize) -> Self {
        Self { number, taken: Vec::new() }
    }

    /// Takes these elements of a dimension, which is counted from the outermost, and no others except those of
    /// further calls. The ranges of a dimension ascend.
    #[must_use]
    pub fn take(mut self, dim: usize, elements: Range<u64>) -> Self {
        match self.taken.iter_mut().find(|(other, _)| *other == dim) {
            Some((_, ranges)) => ranges.push(elements),
            None => self.taken.push((dim, vec![elements])),
        }
        self
    }

    /// The tensor's place in [`Model::tensors`](crate::Model::tensors).
    pub fn number(&self) -> usize {
        self.number
    }

    /// What the part is: the tensor's description with the part's shape, and the range of the file from its
    /// first byte to its last.
    ///
    /// # Errors
    ///
    /// [`Error::NoPart`](crate::Error::NoPart), [`Error::NoNumber`](crate::Error::NoNumber).
    pub fn describe(&self, model: &Model) -> Result<Tensor> {
        self.of(model.numbered(self.number)?).map(|(described, _)| described)
    }

    /// The bytes of the part, and its description: the tensor with the part's shape and range.
    pub(crate) fn of(&self, tensor: &Tensor) -> Result<(Tensor, Strips)> {
        let no_part = |reason| tensor.no_part(reason);
        let mut ranges: Vec<Vec<Range<u64>>> =
            tensor.shape.iter().map(|size| std::iter::once(0..*size).collect()).collect();
        for (dim, taken) in &self.taken {
            let place =
                ranges.get_mut(*dim).ok_or_else(|| no_part(NoPart::Dimension { dim: *dim }))?;
            let size = tensor.shape[*dim];
            *place = joined(taken, size).map_err(|bad| {
                no_part(NoPart::Range { dim: *dim, size, start: bad.start, end: bad.end })
            })?;
        }
        let elements =
            |ranges: &Vec<Range<u64>>| ranges.iter().map(|range| range.end - range.start).sum();
        let shape: Vec<u64> = ranges.iter().map(elements).collect();
        let blocks = || no_part(NoPart::Blocks { elements: tensor.dtype.block().elements });
        let strips = Strips::new(tensor, &ranges).ok_or_else(blocks)?;
        let described = Tensor { shape, range: strips.span(), ..tensor.clone() };
        Ok((described, strips))
    }
}

/// Ranges of a dimension without empty ones and with adjacent ones as one, or a range that does not belong
/// there.
fn joined(ranges: &[Range<u64>], size: u64) -> Result<Vec<Range<u64>>, Range<u64>> {
    let mut found: Vec<Range<u64>> = Vec::new();
    let mut end = 0;
    for range in ranges {
        if range.start < end || range.start > range.end || range.end > size {
            return Err(range.clone());
        }
        end = range.end;
        match found.last_mut() {
            _ if range.is_empty() => {}
            Some(last) if last.end == range.start => last.end = range.end,
            _ => found.push(range.clone()),
        }
    }
    Ok(found)
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "lists of ranges, some with one")]
mod tests {
    use super::*;
    use crate::byte_order::ByteOrder;
    use crate::dtype::Dtype;
    use crate::error::Error;

    fn tensor(dtype: Dtype, shape: &[u64]) -> Tensor {
        let range = 1000..1000 + dtype.byte_len(shape).expect("whole blocks");
        let byte_order = ByteOrder::Little;
        Tensor { name: "t".into(), dtype, shape: shape.to_vec(), file: 0, range, byte_order }
    }

    fn strips_of(tensor: &Tensor, part: &Part) -> Vec<Range<u64>> {
        let (described, strips) = part.of(tensor).expect("a part");
        let found: Vec<_> = (0..strips.count()).map(|number| strips.get(number)).collect();
        assert_eq!(found.iter().map(|strip| strip.end - strip.start).sum::<u64>(), described.len());
        assert!(found.windows(2).all(|pair| pair[0].end <= pair[1].start), "{found:?}");
        let first = found.first().map_or(1000, |strip| strip.start);
        assert_eq!(described.range, first..found.last().map_or(first, |strip| strip.end));
        let gaps = found.windows(2).map(|pair| pair[1].start - pair[0].end);
        assert_eq!(strips.widest_gap(), gaps.max().unwrap_or(0), "{found:?}");
        found
    }

    #[test]
    fn every_box_consists_of_the_bytes_of_its_elements() {
        let shape = [3_u64, 1, 4, 5];
        let whole = tensor(Dtype::I16, &shape);
        let picks = |size: u64| {
            let mut picks: Vec<Vec<Range<u64>>> = vec![std::iter::once(0..0).collect()];
            for start in 0..size {
                for end in start + 1..=size {
                    picks.push(std::iter::once(start..end).collect());
                }
            }
            if size > 2 {
                picks.push(vec![0..1, 2..size]);
            }
            if size > 4 {
                picks.push(vec![0..1, 2..3, 4..size]);
            }
            picks
        };
        for a in picks(3) {
            for c in picks(4) {
                for d in picks(5) {
                    let take = |part, dim, ranges: &Vec<Range<u64>>| {
                        ranges.iter().cloned().fold(part, |part: Part, range| part.take(dim, range))
                    };
                    let part = take(take(take(Part::whole(0), 0, &a), 2, &c), 3, &d);
                    let mut expected = Vec::new();
                    for i in a.iter().cloned().flatten() {
                        for k in c.iter().cloned().flatten() {
                            for l in d.iter().cloned().flatten() {
                                let at = 1000 + 2 * ((i * 4 + k) * 5 + l);
                                expected.extend(at..at + 2);
                            }
                        }
                    }
                    let found: Vec<u64> = strips_of(&whole, &part).into_iter().flatten().collect();
                    assert_eq!(found, expected, "{part:?}");
                }
            }
        }
    }

    #[test]
    fn contiguous_parts_are_one_strip() {
        let matrix = tensor(Dtype::F32, &[8, 6]);
        let one = |part: &Part| strips_of(&matrix, part).len();
        assert_eq!(one(&Part::whole(0)), 1);
        assert_eq!(one(&Part::whole(0).take(0, 2..5)), 1);
        assert_eq!(one(&Part::whole(0).take(0, 2..3).take(0, 3..5).take(1, 0..6)), 1);
        assert_eq!(one(&Part::whole(0).take(1, 0..3)), 8);
        assert_eq!(one(&Part::whole(0).take(0, 0..2).take(0, 4..6)), 2);
        assert_eq!(one(&Part::whole(0).take(0, 1..1)), 0);
        assert_eq!(strips_of(&tensor(Dtype::F32, &[]), &Part::whole(0)), [1000..1004]);
        assert_eq!(strips_of(&tensor(Dtype::F32, &[1, 6]), &Part::whole(0).take(1, 2..4)).len(), 1);
    }

    #[test]
    fn parts_that_a_tensor_does_not_have_are_refused() {
        let packed = tensor(Dtype::F4, &[3, 4]);
        let reason = |part: Part| match part.of(&packed) {
            Err(Error::NoPart { reason, .. }) => reason,
            other => panic!("{other:?}"),
        };
        assert_eq!(reason(Part::whole(0).take(2, 0..1)), NoPart::Dimension { dim: 2 });
        let range = |start, end| NoPart::Range { dim: 0, size: 3, start, end };
        #[allow(clippy::reversed_empty_ranges, reason = "a part that is refused")]
        let reversed = Part::whole(0).take(0, 2..1);
        assert_eq!(reason(reversed), range(2, 1));
        assert_eq!(reason(Part::whole(0).take(0, 0..4)), range(0, 4));
        assert_eq!(reason(Part::whole(0).take(0, 0..2).take(0, 1..3)), range(1, 3));
        assert_eq!(reason(Part::whole(0).take(1, 1..3)), NoPart::Blocks { elements: 2 });
        assert_eq!(strips_of(&packed, &Part::whole(0).take(1, 2..4)).len(), 3);
        // Rows of 3 elements are not whole bytes: two of them are.
        let odd = tensor(Dtype::F4, &[4, 3]);
        assert_eq!(strips_of(&odd, &Part::whole(0).take(0, 2..4)), [1003..1006]);
        assert!(Part::whole(0).take(0, 1..4).of(&odd).is_err());
    }
}
