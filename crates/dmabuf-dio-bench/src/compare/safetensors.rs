// SPDX-License-Identifier: MIT OR Apache-2.0
//! The content of the file: tensors as written by the safetensors library, filled with words that
//! encode their position in the data section.

use clap::ValueEnum;

use crate::pattern::Pattern;

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
        if self == Self::Many { "many" } else { "few" }
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

/// The content of a file of `len` bytes, a multiple of eight: its data is the pattern.
pub(crate) fn content(len: u64, tensors: Tensors, data: Pattern) -> Pattern {
    // The longer the header, the less data it describes: never longer than the first one.
    let longest = header(len, tensors).len() as u64;
    let size = longest.next_multiple_of(ALIGN).min(len.saturating_sub(PREFIX));
    let mut text = header(len - PREFIX - size, tensors);
    text.push_str(&" ".repeat((size as usize).saturating_sub(text.len())));
    data.after([&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat())
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
    fn header_describes_all_of_the_data() {
        for (len, tensors) in
            [(4096, Tensors::Many), (64 << 10, Tensors::Few), ((8 << 20) + 4096, Tensors::Many)]
        {
            let content = content(len, tensors, Pattern::new(3));
            let mut bytes = vec![0; len as usize];
            content.fill(&mut bytes, 0);
            let file = safetensors::SafeTensors::deserialize(&bytes).expect("without gaps");
            let data: usize = file.tensors().iter().map(|(_, tensor)| tensor.data().len()).sum();
            assert_eq!((data as u64 + content.start(), content.start() % ALIGN), (len, 0));
        }
    }
}
