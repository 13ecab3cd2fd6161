// SPDX-License-Identifier: MIT OR Apache-2.0
//! The content of the file: tensors as written by the safetensors library, filled with words that
//! encode their position in the data section.

use clap::ValueEnum;
use dmabuf_dio_terminal::exit::Failure;

use crate::disk::DiskFile;
use crate::pattern::{Difference, Pattern, compare};

/// Length of the field before the header, which holds the header's length.
const PREFIX: u64 = 8;
/// Alignment of the data in the safetensors library.
const ALIGN: u64 = 8;

/// How the data is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Tensors {
    /// 64 KiB to 1 MiB each, as in models with many tensors
    Many,
    /// At most 512 MiB each
    Few,
}

impl Tensors {
    /// The name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Many => "many",
            Self::Few => "few",
        }
    }

    /// The size of the next tensor, if that much data is left.
    fn size(self, number: u64) -> u64 {
        match self {
            Self::Many => (64 << 10) << (number * 7 % 5),
            Self::Few => 512 << 20,
        }
    }
}

/// Names of types and their sizes in bytes. No BF16, which `NumPy` lacks.
const TYPES: [(&str, u64); 4] = [("F32", 4), ("F16", 2), ("I8", 1), ("U8", 1)];

/// The content of a file of a given length.
#[derive(Clone, Debug)]
pub(crate) struct SafeTensors {
    /// Everything before the data.
    head: Vec<u8>,
    data: Pattern,
    len: u64,
}

impl SafeTensors {
    /// The content of a file of `len` bytes, a multiple of eight.
    pub(crate) fn new(len: u64, tensors: Tensors, data: Pattern) -> Self {
        // The longer the header, the less data it describes: never longer than the first one.
        let longest = header(len, tensors).len() as u64;
        let size = longest.next_multiple_of(ALIGN).min(len.saturating_sub(PREFIX));
        let mut text = header(len - PREFIX - size, tensors);
        text.push_str(&" ".repeat((size as usize).saturating_sub(text.len())));
        let head = [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat();
        Self { head, data, len }
    }

    /// Offset of the data.
    fn data_start(&self) -> u64 {
        self.head.len() as u64
    }

    /// Compares every byte of the file.
    pub(crate) fn check(&self, bytes: &[u8]) -> Result<(), Difference> {
        if (bytes.len() as u64) < self.len {
            return Err(Difference::missing(bytes.len() as u64));
        }
        let (head, data) = bytes.split_at(self.head.len());
        compare(head, &self.head, 0)?;
        let start = self.data_start();
        self.data.check(data, 0).map_err(|difference| difference.after(start))
    }

    /// Writes the content of position `at`. Position and length are multiples of eight.
    fn fill(&self, bytes: &mut [u8], at: u64) {
        let start = self.data_start();
        let in_head = start.saturating_sub(at).min(bytes.len() as u64) as usize;
        let (head, data) = bytes.split_at_mut(in_head);
        if in_head > 0 {
            head.copy_from_slice(&self.head[at as usize..][..in_head]);
        }
        if !data.is_empty() {
            self.data.fill(data, at + in_head as u64 - start);
        }
    }
}

/// A named file and its content.
pub(crate) struct TestFile {
    pub(crate) disk: DiskFile,
    pub(crate) pattern: Pattern,
    /// Offset of its data.
    pub(crate) data_start: u64,
}

impl TestFile {
    pub(crate) fn write(
        disk: DiskFile,
        tensors: Tensors,
        pattern: Pattern,
    ) -> Result<Self, Failure> {
        let content = SafeTensors::new(disk.len(), tensors, pattern);
        disk.write(|bytes, at| content.fill(bytes, at))?;
        Ok(Self { disk, pattern, data_start: content.data_start() })
    }
}

/// Describes `len` bytes of data.
fn header(len: u64, tensors: Tensors) -> String {
    let mut text = String::from("{\"__metadata__\":{\"format\":\"pt\"}");
    let (mut begin, mut number) = (0, 0);
    while begin < len {
        let end = begin + tensors.size(number).min(len - begin);
        let (name, bytes) = TYPES[number as usize % TYPES.len()];
        let shape = (end - begin) / bytes;
        text += &format!(
            ",\"layers.{number}.weight\":{{\"dtype\":\"{name}\",\"shape\":[{shape}],\
             \"data_offsets\":[{begin},{end}]}}"
        );
        (begin, number) = (end, number + 1);
    }
    text + "}"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_describes_all_of_the_data_and_every_byte_is_compared() {
        for (len, tensors) in
            [(4096, Tensors::Many), (64 << 10, Tensors::Few), ((8 << 20) + 4096, Tensors::Many)]
        {
            let content = SafeTensors::new(len, tensors, Pattern::new(3));
            let mut bytes = vec![0; len as usize];
            // In pieces, as it is written.
            for (number, piece) in bytes.chunks_mut(4096).enumerate() {
                content.fill(piece, number as u64 * 4096);
            }
            let size = u64::from_le_bytes(bytes[..8].try_into().expect("eight"));
            assert_eq!((size + 8, (size + 8) % 8), (content.data_start(), 0));
            let header: serde_json::Value =
                serde_json::from_slice(&bytes[8..][..size as usize]).expect("JSON");
            let tensors = header.as_object().expect("an object").values();
            let number = |value: &serde_json::Value| value.as_u64();
            let mut ends: Vec<_> = tensors
                .filter_map(|tensor| {
                    let kind = TYPES.iter().find(|kind| tensor["dtype"] == kind.0)?;
                    let [begin, end] = [0, 1].map(|index| number(&tensor["data_offsets"][index]));
                    assert_eq!(number(&tensor["shape"][0])? * kind.1, end? - begin?);
                    Some((begin?, end?))
                })
                .collect();
            ends.sort_unstable();
            assert!(ends.windows(2).all(|pair| pair[0].1 == pair[1].0), "without gaps");
            assert_eq!(ends.last().expect("a tensor").1 + content.data_start(), len);
            assert_eq!(content.check(&bytes), Ok(()));
            let start = content.data_start() as usize;
            for at in [0, 8, start - 1, start, start + 9, bytes.len() - 1] {
                bytes[at] ^= 4;
                assert_eq!(content.check(&bytes).expect_err("a difference").at, at as u64);
                bytes[at] ^= 4;
            }
            assert!(content.check(&bytes[..bytes.len() - 8]).is_err(), "too short");
        }
    }
}
