// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plans the ranges of the files to read.

use std::ops::Range;

use crate::tensor::Tensor;

/// A range of a file that is read as a whole, and the tensors in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run<T = Range<usize>> {
    pub(crate) file: usize,
    pub(crate) range: Range<u64>,
    /// Positions in the list of wanted tensors.
    pub(crate) tensors: T,
}

impl<T> Run<T> {
    pub(crate) fn len(&self) -> u64 {
        self.range.end - self.range.start
    }
}

/// The runs of `wanted`, which is in the order of files and of bytes in them. Tensors of a file with
/// at most `gap` bytes between them share a run. Empty tensors need none, but may lie in one.
pub(crate) fn runs(wanted: &[&Tensor], gap: u64) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (position, tensor) in wanted.iter().enumerate() {
        if tensor.is_empty() {
            continue;
        }
        let near =
            |run: &&mut Run| run.file == tensor.file && tensor.range.start - run.range.end <= gap;
        match runs.last_mut().filter(near) {
            Some(run) => {
                run.range.end = tensor.range.end;
                run.tensors.end = position + 1;
            }
            None => runs.push(Run {
                file: tensor.file,
                range: tensor.range.clone(),
                tensors: position..position + 1,
            }),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::byte_order::ByteOrder;
    use crate::dtype::Dtype;

    fn tensor(file: usize, range: Range<u64>) -> Tensor {
        let shape = vec![range.end - range.start];
        let byte_order = ByteOrder::Little;
        Tensor { name: String::new(), dtype: Dtype::U8, shape, file, range, byte_order }
    }

    #[test]
    fn adjacent_tensors_share_a_run() {
        let all = [
            tensor(0, 8..8),
            tensor(0, 8..10),
            tensor(0, 10..10),
            tensor(0, 20..30),
            tensor(0, 41..50),
            tensor(1, 50..60),
            tensor(1, 60..60),
        ];
        let all: Vec<&Tensor> = all.iter().collect();
        let found: Vec<_> =
            runs(&all, 10).into_iter().map(|run| (run.file, run.range, run.tensors)).collect();
        assert_eq!(found, [(0, 8..30, 1..4), (0, 41..50, 4..5), (1, 50..60, 5..6)]);
        assert_eq!(runs(&all, 11).len(), 2);
        assert_eq!(runs(&all, 0).len(), 4);
        assert!(runs(&all[..1], 0).is_empty());
    }
}
