// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parts of tensors, and what is read for them, against loops over elements and bytes.

use std::ops::Range;

use proptest::collection::vec;
use proptest::prelude::*;

use crate::byte_order::ByteOrder;
use crate::drawn::{holds, one_of};
use crate::dtype::Dtype;
use crate::part::Part;
use crate::plan::runs;
use crate::save_parts::Parts;
use crate::tensor::Tensor;

const START: u64 = 1000;

fn dtypes() -> impl Strategy<Value = Dtype> {
    one_of![
        Just(Dtype::U8),
        Just(Dtype::I16),
        Just(Dtype::F64),
        Just(Dtype::F4),
        Just(Dtype::F6E2M3)
    ]
}

/// A tensor of up to four dimensions, and which elements of each are taken: a bit for each of the first 8.
fn tensors() -> impl Strategy<Value = (Tensor, Vec<u8>)> {
    let masks = one_of![3 => Just(0xff_u8), 2 => any::<u8>()];
    (dtypes(), vec((0_u64..9, masks), 0..5)).prop_filter_map("not whole blocks", |(dtype, dims)| {
        let (shape, taken): (Vec<u64>, Vec<u8>) = dims.into_iter().unzip();
        let range = START..START + dtype.byte_len(&shape)?;
        let (name, byte_order) = ("t".into(), ByteOrder::Little);
        Some((Tensor { name, dtype, shape, file: 0, range, byte_order }, taken))
    })
}

/// Whether an element of a dimension is taken.
fn takes(mask: u8, element: u64) -> bool {
    mask >> element & 1 == 1
}

/// The part, by ranges that may be adjacent or empty.
fn part(tensor: &Tensor, taken: &[u8]) -> Part {
    let mut part = Part::whole(0);
    for (dim, (size, mask)) in tensor.shape.iter().zip(taken).enumerate() {
        if *mask == 0xff {
            continue;
        }
        part = part.take(dim, 0..0);
        for element in (0..*size).filter(|element| takes(*mask, *element)) {
            part = part.take(dim, element..element + 1);
        }
    }
    part
}

/// The numbers of the elements of a part, by a loop over all.
fn elements(tensor: &Tensor, taken: &[u8]) -> Vec<u64> {
    let all: u64 = tensor.shape.iter().product();
    let is_taken = |number: &u64| {
        let mut left = *number;
        tensor.shape.iter().zip(taken).rev().all(|(size, mask)| {
            let element = left % size;
            left /= size;
            takes(*mask, element)
        })
    };
    (0..all).filter(is_taken).collect()
}

#[cfg_attr(test, test)]
pub(crate) fn parts_have_the_bytes_of_their_elements() {
    holds(&tensors(), |(tensor, taken)| {
        let block = tensor.dtype.block();
        let wanted = elements(&tensor, &taken);
        let bytes_of = |elements: &[u64]| {
            let at = START + elements[0] / block.elements * block.bytes;
            at..at + block.bytes
        };
        let Ok((described, strips)) = part(&tensor, &taken).of(&tensor) else {
            assert!(block.elements > 1, "it has no blocks");
            return;
        };
        // They are whole blocks.
        let blocks = wanted.chunks(block.elements as usize);
        for elements in blocks.clone() {
            let first = elements[0] / block.elements * block.elements;
            assert!(elements.iter().copied().eq(first..first + block.elements), "{elements:?}");
        }
        let wanted: Vec<u64> = blocks.flat_map(bytes_of).collect();
        let found: Vec<Range<u64>> = (0..strips.count()).map(|number| strips.get(number)).collect();
        assert!(found.iter().cloned().flatten().eq(wanted.iter().copied()), "{found:?}");
        assert_eq!(described.len(), wanted.len() as u64);
        let span = wanted.first().map(|first| *first..wanted[wanted.len() - 1] + 1);
        assert!(span.is_none_or(|span| span == strips.span() && span == described.range));
        let gaps = found.windows(2).map(|pair| pair[1].start - pair[0].end);
        assert_eq!(strips.widest_gap(), gaps.max().unwrap_or(0), "{found:?}");
    });
}

#[cfg_attr(test, test)]
pub(crate) fn runs_have_every_tensor_and_no_wide_gap() {
    let tensors = vec((0_u64..30, 0_u64..20, prop::bool::weighted(0.1)), 0..30);
    holds(&(tensors, 0_u64..25), |(drawn, gap)| {
        let (mut file, mut at) = (0, 0);
        let mut tensors = Vec::new();
        for (skip, len, is_next) in drawn {
            (file, at) = if is_next { (file + 1, skip) } else { (file, at + skip) };
            let (name, dtype, byte_order) = (String::new(), Dtype::U8, ByteOrder::Little);
            let range = at..at + len;
            tensors.push(Tensor { name, dtype, shape: vec![len], file, range, byte_order });
            at += len;
        }
        let all: Vec<&Tensor> = tensors.iter().collect();
        let found = runs(&all, gap);
        for (position, tensor) in all.iter().enumerate().filter(|(_, tensor)| !tensor.is_empty()) {
            let has = |run: &&crate::plan::Run| run.tensors.contains(&position);
            let [run] = found.iter().filter(has).collect::<Vec<_>>()[..] else {
                panic!("{position} in {found:?}")
            };
            assert!(run.file == tensor.file, "{position} in {run:?}");
            assert!(run.range.start <= tensor.range.start && tensor.range.end <= run.range.end);
        }
        for run in &found {
            let some = all[run.tensors.clone()].iter().filter(|tensor| !tensor.is_empty());
            let some: Vec<_> = some.map(|tensor| tensor.range.clone()).collect();
            assert!(run.range == (some[0].start..some[some.len() - 1].end), "{run:?}");
            assert!(some.windows(2).all(|pair| pair[1].start - pair[0].end <= gap), "{run:?}");
        }
        let apart = |pair: &[crate::plan::Run]| {
            pair[0].file != pair[1].file || pair[1].range.start - pair[0].range.end > gap
        };
        assert!(found.windows(2).all(apart), "{found:?}");
    });
}

#[cfg_attr(test, test)]
pub(crate) fn saved_parts_are_the_header_and_the_tensors_in_order() {
    let parts = vec((vec(any::<u8>(), 0..40), 0_usize..5), 0..8);
    let reads = vec(1_usize..50, 1..20);
    holds(&(vec(any::<u8>(), 0..30), parts, reads), |(header, parts, reads)| {
        use std::io::Read as _;
        // What is opened may have more than is wanted of it.
        let lengths: Vec<(usize, u64)> = (0..parts.len())
            .map(|number| {
                let (bytes, more) = &parts[number];
                (number, bytes.len().saturating_sub(*more) as u64)
            })
            .collect();
        let open = |number: usize| Ok(&parts[number].0[..]);
        let mut reader = Parts::new(&header, &lengths, open);
        let (mut found, mut sizes) = (Vec::<u8>::new(), reads.iter().cycle());
        loop {
            let mut piece = vec![0; *sizes.next().expect("a size")];
            let len = reader.read(&mut piece).expect("read");
            if len == 0 {
                break;
            }
            found.extend_from_slice(&piece[..len]);
        }
        let mut wanted = header.clone();
        for (number, len) in &lengths {
            wanted.extend(&parts[*number].0[..*len as usize]);
        }
        assert!(found == wanted, "{} bytes of {}", found.len(), wanted.len());
    });
}
