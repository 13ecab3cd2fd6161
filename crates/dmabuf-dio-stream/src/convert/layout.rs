// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the values of a frame lie in memory, and the names of sample types.

use std::fmt;
use std::str::FromStr;

use crate::format::{Encoding, Format};

/// The position and the format of each value in a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Byte offset in the frame, and format with `repeat` 1.
    pub(super) values: Vec<(usize, Format)>,
    frame: u64,
}

impl Layout {
    /// A frame of an IIO device with channels of these formats: each sample is aligned to its own
    /// size, and the frame is a multiple of the largest. A format that repeats has several values.
    pub fn of(formats: &[Format]) -> Self {
        let (mut end, mut largest, mut values) = (0_u64, 1, Vec::new());
        for format in formats {
            let bytes = format.bytes();
            end = end.next_multiple_of(bytes.max(1));
            for number in 0..u64::from(format.repeat) {
                let at = end + number * bytes / u64::from(format.repeat);
                values.push((at as usize, Format { repeat: 1, ..*format }));
            }
            end += bytes;
            largest = largest.max(bytes);
        }
        Self { values, frame: end.next_multiple_of(largest) }
    }

    /// A frame of `count` values of one format, one after the other.
    pub fn uniform(format: Format, count: usize) -> Self {
        Self::of(&vec![Format { repeat: 1, ..format }; count])
    }

    /// Selects values of the frame by their index from 0, in this order. The other values remain in
    /// the frame and are ignored. `None` if an index does not exist.
    #[must_use]
    pub fn select(&self, wanted: &[usize]) -> Option<Self> {
        let values = wanted.iter().map(|&index| self.values.get(index).copied());
        Some(Self { values: values.collect::<Option<_>>()?, frame: self.frame })
    }

    /// Bytes per frame.
    pub fn frame(&self) -> u64 {
        self.frame
    }

    /// Number of values per frame.
    pub fn count(&self) -> usize {
        self.values.len()
    }

    /// The format of all values, if they have one and lie one after the other.
    pub(crate) fn one_format(&self) -> Option<Format> {
        let (_, format) = *self.values.first()?;
        let same = self.values.iter().all(|(_, other)| *other == format);
        (same && self.frame == format.bytes() * self.count() as u64).then_some(format)
    }
}

/// For example `le:s12/16>>4 x 2`; with different formats, `le:s12/16>>4, le:u8/8>>0`.
impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(format) = self.one_format() {
            return write!(f, "{format} x {}", self.count());
        }
        for (number, (_, format)) in self.values.iter().enumerate() {
            write!(f, "{}{format}", if number == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

/// The type of the samples in a file, by SigMF's name (`ci16_le`, `rf32_be`, `cu8`) or as a format
/// of IIO (`le:s12/16>>0`).
///
/// In a name, `c` or `r` says whether samples are pairs of an in-phase and a quadrature part or
/// real, which is the default; `_le` is the default, too. Integers have 8, 16 or 32 bits, all of
/// them significant, and floating-point numbers 32 or 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleType {
    /// Whether two consecutive values are a sample.
    pub complex: bool,
    /// The format of a value.
    pub format: Format,
}

impl SampleType {
    /// SigMF's name of the type that can hold these values, possibly with more bits: for
    /// `le:s12/16>>0` it is `ri16_le`. `None` if there is no such type.
    pub fn sigmf(&self) -> Option<String> {
        let Format { big_endian, kind, storage_bits, repeat, .. } = self.format;
        let number = match (kind, storage_bits) {
            (Encoding::Signed, 8 | 16 | 32) => 'i',
            (Encoding::Unsigned, 8 | 16 | 32) => 'u',
            (Encoding::Float, 32 | 64) => 'f',
            _ => return None,
        };
        if repeat != 1 {
            return None;
        }
        let order = match (storage_bits, big_endian) {
            (8, _) => "",
            (_, true) => "_be",
            (_, false) => "_le",
        };
        Some(format!("{}{number}{storage_bits}{order}", if self.complex { 'c' } else { 'r' }))
    }

    /// Whether every bit in memory is significant, so that SigMF's name describes the type
    /// completely.
    pub fn is_plain(&self) -> bool {
        self.format.bits == self.format.storage_bits && self.sigmf().is_some()
    }
}

impl fmt::Display for SampleType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.sigmf().filter(|_| self.is_plain()) {
            Some(name) => f.write_str(&name),
            None => self.format.fmt(f),
        }
    }
}

impl FromStr for SampleType {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains(':') {
            return Ok(Self { complex: false, format: text.parse()? });
        }
        named(text).ok_or_else(|| {
            format!(
                "{text:?} is not a sample type: write ci16, cf32, ci8, i16, f32, u8, with _be for \
                 big-endian ones, or a format of IIO such as le:s12/16>>4"
            )
        })
    }
}

fn named(text: &str) -> Option<SampleType> {
    let (rest, big_endian) = match text.strip_suffix("_be") {
        Some(rest) => (rest, true),
        None => (text.strip_suffix("_le").unwrap_or(text), false),
    };
    let (complex, rest) = match rest.strip_prefix('c') {
        Some(rest) => (true, rest),
        None => (false, rest.strip_prefix('r').unwrap_or(rest)),
    };
    let (kind, bits) = match rest {
        "i8" => (Encoding::Signed, 8),
        "i16" => (Encoding::Signed, 16),
        "i32" => (Encoding::Signed, 32),
        "u8" => (Encoding::Unsigned, 8),
        "u16" => (Encoding::Unsigned, 16),
        "u32" => (Encoding::Unsigned, 32),
        "f32" => (Encoding::Float, 32),
        "f64" => (Encoding::Float, 64),
        _ => return None,
    };
    let format = Format { big_endian, kind, bits, storage_bits: bits, shift: 0, repeat: 1 };
    Some(SampleType { complex, format })
}

#[cfg(test)]
mod tests {
    use super::super::Converter;
    use super::*;

    #[test]
    fn sample_type_names_are_parsed() {
        for (text, name) in [
            ("ci16", "ci16_le"),
            ("cf32_le", "cf32_le"),
            ("ci8", "ci8"),
            ("i16", "ri16_le"),
            ("ru32_be", "ru32_be"),
            ("u8_be", "ru8"),
            ("f64_be", "rf64_be"),
            ("le:s12/16>>4", "le:s12/16>>4"),
            ("be:u10/16", "be:u10/16>>0"),
            ("le:s16/16>>0", "ri16_le"),
            ("le:u8/8X3>>0", "le:u8/8X3>>0"),
            ("be:s8/8", "ri8"),
            ("le:s64/64>>0", "le:s64/64>>0"),
        ] {
            let of = text.parse::<SampleType>().expect(text);
            assert_eq!(of.to_string(), name);
            assert_eq!(name.parse(), Ok(of), "{name}");
        }
        for bad in [
            "",
            "c",
            "i12",
            "f16",
            "ci64",
            "xi16",
            "i16_me",
            "xe:s16/16>>0",
            "le:f16/16",
            "le:s0/8",
            "le:u65/128",
        ] {
            assert!(bad.parse::<SampleType>().is_err(), "{bad}");
        }
        let packed: SampleType = "be:s12/16>>4".parse().expect("a format");
        assert_eq!((packed.sigmf().as_deref(), packed.is_plain()), (Some("ri16_be"), false));
    }

    #[test]
    fn bytes_are_not_converted_for_their_order() {
        let device = Layout::of(&[Format::parse("be:s8/8>>0").expect("as a driver has it")]);
        for text in ["be:s8/8", "le:s8/8", "i8", "i8_be"] {
            let file = text.parse::<SampleType>().expect(text).format;
            let file = Layout::uniform(file, 1);
            assert_eq!(device, file, "{text}");
            let converter = Converter::new(device.clone(), file).expect("a conversion");
            assert!(converter.is_identity(), "{text}");
        }
        assert_eq!(device.to_string(), "be:s8/8>>0 x 1");
    }

    #[test]
    fn values_have_aligned_offsets_in_a_frame() {
        let format = |text: &str| text.parse::<Format>().expect(text);
        let mixed = Layout::of(&[format("le:u8/8"), format("le:s12/16>>4"), format("be:f64/64")]);
        let places: Vec<_> = mixed.values.iter().map(|(at, _)| *at).collect();
        assert_eq!((places, mixed.frame(), mixed.one_format()), (vec![0, 2, 8], 16, None));
        let four = Layout::of(&[format("be:s16/16X4")]);
        assert_eq!((four.count(), four.frame()), (4, 8));
        assert_eq!(four, Layout::uniform(format("be:s16/16"), 4));
        assert_eq!(four.to_string(), "be:s16/16>>0 x 4");
        assert_eq!(mixed.to_string(), "le:u8/8>>0, le:s12/16>>4, be:f64/64>>0");
        let picked = mixed.select(&[2, 0]).expect("both are there");
        let places: Vec<_> = picked.values.iter().map(|(at, _)| *at).collect();
        assert_eq!((places, picked.frame(), picked.count()), (vec![8, 0], 16, 2));
        assert_eq!(mixed.select(&[3]), None);
    }
}
