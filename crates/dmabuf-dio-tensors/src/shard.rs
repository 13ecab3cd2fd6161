// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parts of tensors that one of several ranks uses.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::model::Model;
use crate::no_part::NoPart;
use crate::part::Part;
use crate::tensor::Tensor;

/// One of the ranks that share the tensors of a model, as in tensor parallelism.
///
/// ```no_run
/// # fn main() -> Result<(), dmabuf_dio_tensors::Error> {
/// use std::sync::Arc;
/// use dmabuf_dio_tensors::{Model, Part, Reader, Shard, Split};
///
/// let model = Arc::new(Model::open("Qwen3-0.6B")?);
/// let shard = Shard::new(0, 2)?;
/// let part = |(number, tensor): (usize, &dmabuf_dio_tensors::Tensor)| {
///     if tensor.name.ends_with("q_proj.weight") {
///         shard.part(&model, number, &Split::ROWS)
///     } else if tensor.name.ends_with("o_proj.weight") {
///         shard.part(&model, number, &Split::COLUMNS)
///     } else {
///         Ok(Part::whole(number))
///     }
/// };
/// let parts = model.tensors().iter().enumerate().map(part).collect::<Result<Vec<_>, _>>()?;
/// let reader = Reader::of_parts(Arc::clone(&model), &parts, None, &dmabuf_dio::Options::default())?;
/// for item in &reader {
///     let (tensor, memory) = item?;
///     println!("{} {:?}: {} bytes", tensor.name, tensor.shape, memory.map_or(0, |part| part.len()));
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shard {
    rank: u32,
    world: u32,
}

/// How a tensor is divided among ranks: along one dimension, evenly.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Split {
    dim: usize,
    sections: Vec<u64>,
}

impl Split {
    /// The rows of a matrix, or the elements of a vector: dimension 0.
    pub const ROWS: Self = Self::along(0);
    /// The columns of a matrix: dimension 1.
    pub const COLUMNS: Self = Self::along(1);

    /// Along a dimension, counted from the outermost.
    pub const fn along(dim: usize) -> Self {
        Self { dim, sections: Vec::new() }
    }

    /// Divides several tensors that were joined along the dimension, such as query, key and value, each by
    /// itself. `sections`: their elements in this dimension.
    #[must_use]
    pub fn sections(mut self, sections: impl Into<Vec<u64>>) -> Self {
        self.sections = sections.into();
        self
    }
}

impl Shard {
    /// The rank `rank` of `world` ranks, counted from 0.
    ///
    /// # Errors
    ///
    /// [`Error::NoShard`].
    pub fn new(rank: u32, world: u32) -> Result<Self> {
        if rank < world { Ok(Self { rank, world }) } else { Err(Error::NoShard { rank, world }) }
    }

    /// This rank's part of a tensor, by its place in [`Model::tensors`].
    ///
    /// # Errors
    ///
    /// [`Error::NoNumber`]; [`Error::NoPart`]: a section cannot be divided evenly, or sections do not add up
    /// to the dimension.
    pub fn part(self, model: &Model, number: usize, split: &Split) -> Result<Part> {
        let tensor = model.numbered(number)?;
        let ranges = self.ranges(tensor, split).map_err(|reason| tensor.no_part(reason))?;
        let whole = Part::whole(number);
        Ok(ranges.into_iter().fold(whole, |part, range| part.take(split.dim, range)))
    }

    fn ranges(self, tensor: &Tensor, split: &Split) -> Result<Vec<Range<u64>>, NoPart> {
        let dim = split.dim;
        let size = *tensor.shape.get(dim).ok_or(NoPart::Dimension { dim })?;
        let sections = if split.sections.is_empty() { &[size][..] } else { &split.sections };
        let sum = sections.iter().try_fold(0_u64, |sum, section| sum.checked_add(*section));
        if sum != Some(size) {
            return Err(NoPart::Sections { dim, size, sum: sum.unwrap_or(u64::MAX) });
        }
        let (rank, world) = (u64::from(self.rank), u64::from(self.world));
        let mut start = 0;
        let range = |section: &u64| {
            if section % world != 0 {
                return Err(NoPart::Uneven { dim, size: *section, world: self.world });
            }
            let share = section / world;
            let first = start + rank * share;
            start += section;
            Ok(first..first + share)
        };
        sections.iter().map(range).collect()
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "lists of ranges, some with one")]
mod tests {
    use super::*;
    use crate::byte_order::ByteOrder;
    use crate::dtype::Dtype;

    fn ranges(rank: u32, shape: &[u64], split: &Split) -> Result<Vec<Range<u64>>, NoPart> {
        let range = 0..shape.iter().product();
        let (dtype, byte_order) = (Dtype::U8, ByteOrder::Little);
        let name = String::new();
        let tensor = Tensor { name, dtype, shape: shape.to_vec(), file: 0, range, byte_order };
        Shard::new(rank, 4).expect("a rank").ranges(&tensor, split)
    }

    #[test]
    fn ranks_divide_a_dimension_and_each_section_evenly() {
        assert_eq!(ranges(0, &[8, 3], &Split::ROWS), Ok(vec![0..2]));
        assert_eq!(ranges(3, &[8, 4], &Split::COLUMNS), Ok(vec![3..4]));
        let fused = Split::ROWS.sections([16, 4, 4]);
        assert_eq!(ranges(1, &[24], &fused), Ok(vec![4..8, 17..18, 21..22]));
        assert_eq!(ranges(0, &[0], &Split::ROWS), Ok(vec![0..0]));
    }

    #[test]
    fn uneven_sections_and_ranks_that_do_not_exist_are_refused() {
        let uneven = NoPart::Uneven { dim: 1, size: 6, world: 4 };
        assert_eq!(ranges(0, &[8, 6], &Split::COLUMNS), Err(uneven));
        assert_eq!(ranges(0, &[8], &Split::COLUMNS), Err(NoPart::Dimension { dim: 1 }));
        for sections in [&[4][..], &[4, 8], &[u64::MAX, 8]] {
            let split = Split::ROWS.sections(sections);
            assert!(matches!(ranges(0, &[8], &split), Err(NoPart::Sections { size: 8, .. })));
        }
        assert!(matches!(Shard::new(4, 4), Err(Error::NoShard { rank: 4, world: 4 })));
        assert!(Shard::new(0, 0).is_err());
    }
}
