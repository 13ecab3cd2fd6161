// SPDX-License-Identifier: MIT OR Apache-2.0
//! The format of a sample in memory.

use std::fmt;
use std::str::FromStr;

/// The meaning of a sample's bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "lowercase"))]
pub enum Encoding {
    /// An unsigned integer.
    Unsigned,
    /// A two's complement integer.
    Signed,
    /// An IEEE 754 floating-point number.
    Float,
}

/// The layout of a sample in memory, as in `in_voltage0_type`: `le:s12/16>>4`.
///
/// `be:s8/8>>0` equals `le:s8/8>>0`: a byte has no order.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Format {
    /// Whether the most significant byte comes first.
    pub big_endian: bool,
    /// The meaning of the value's bits.
    pub kind: Encoding,
    /// Number of significant bits.
    pub bits: u32,
    /// Number of bits in memory: 8, 16, 32, 64 or 128.
    pub storage_bits: u32,
    /// Number of bits to shift right.
    pub shift: u32,
    /// Number of consecutive values.
    pub repeat: u32,
}

impl PartialEq for Format {
    fn eq(&self, other: &Self) -> bool {
        let parts = |format: &Self| {
            let Self { big_endian, kind, bits, storage_bits, shift, repeat } = *format;
            (big_endian && storage_bits > 8, kind, bits, storage_bits, shift, repeat)
        };
        parts(self) == parts(other)
    }
}

impl Eq for Format {}

impl Format {
    /// Parses the content of a `type` file.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (order, rest) = text.trim().split_once(':')?;
        // A capital letter means that the remaining bits extend the value.
        let kind = match rest.chars().next()?.to_ascii_lowercase() {
            's' => Encoding::Signed,
            'u' => Encoding::Unsigned,
            'f' => Encoding::Float,
            _ => return None,
        };
        let (bits, rest) = rest[1..].split_once('/')?;
        let (storage, shift) = rest.split_once(">>").unwrap_or((rest, "0"));
        let (storage, repeat) = storage.split_once('X').unwrap_or((storage, "1"));
        let format = Self {
            big_endian: order == "be",
            kind,
            bits: bits.parse().ok()?,
            storage_bits: storage.parse().ok()?,
            shift: shift.parse().ok()?,
            repeat: repeat.parse().ok()?,
        };
        let sound = format.storage_bits.is_power_of_two()
            && (8..=128).contains(&format.storage_bits)
            && format.bits.checked_add(format.shift)? <= format.storage_bits
            && (1..=1024).contains(&format.repeat);
        sound.then_some(format)
    }

    /// Size of a sample in bytes, which is also its alignment.
    pub fn bytes(&self) -> u64 {
        u64::from(self.storage_bits / 8 * self.repeat)
    }
}

/// The syntax of a device's `type` attribute: `le:s12/16>>4`.
impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = if self.big_endian { "be" } else { "le" };
        let kind = match self.kind {
            Encoding::Unsigned => 'u',
            Encoding::Signed => 's',
            Encoding::Float => 'f',
        };
        write!(f, "{order}:{kind}{}/{}", self.bits, self.storage_bits)?;
        if self.repeat != 1 {
            write!(f, "X{}", self.repeat)?;
        }
        write!(f, ">>{}", self.shift)
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = text.starts_with("le:") || text.starts_with("be:");
        let format = Self::parse(text).filter(|format| known && format.converts());
        format.ok_or_else(|| {
            format!("{text:?} is not a format: write le:s12/16>>4, or be: and u, or le:f32/32>>0")
        })
    }
}

impl Format {
    /// Whether samples of this format can be converted: integers of 1 to 64 bits, and
    /// floating-point numbers of 32 or 64 bits.
    pub fn converts(&self) -> bool {
        match self.kind {
            Encoding::Float => {
                matches!(self.bits, 32 | 64) && self.bits == self.storage_bits && self.shift == 0
            }
            _ => self.bits > 0 && self.storage_bits <= 64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channel_formats_are_parsed() {
        let format = Format::parse("le:s12/16>>4\n").expect("a format");
        assert_eq!(
            format,
            Format {
                big_endian: false,
                kind: Encoding::Signed,
                bits: 12,
                storage_bits: 16,
                shift: 4,
                repeat: 1
            }
        );
        // A byte has no order, but it is shown as the driver writes it.
        let byte = |text| Format::parse(text).expect("a format");
        assert_eq!(byte("be:s8/8>>0"), byte("le:s8/8>>0"));
        assert_eq!(byte("be:u4/8X3>>2"), byte("le:u4/8X3>>2"));
        assert_eq!(byte("be:s8/8").to_string(), "be:s8/8>>0");
        assert_ne!(byte("be:s8/16"), byte("le:s8/16"));
        assert_ne!(byte("le:s8/8"), byte("le:u8/8"));
        let repeated = Format::parse("be:u32/32X4>>0").expect("a format");
        assert_eq!((repeated.repeat, repeated.bytes(), repeated.big_endian), (4, 16, true));
        assert_eq!(Format::parse("le:s64/64").map(|format| format.shift), Some(0));
        let radio = Format::parse("le:S12/16>>0").expect("as cf-ad9361-lpc has it");
        assert_eq!((radio.kind, radio.bits, radio.shift), (Encoding::Signed, 12, 0));
        assert_eq!(Format::parse("le:f32/32>>0").map(|format| format.kind), Some(Encoding::Float));
        for bad in [
            "",
            "le:u8/256>>0",
            "le:u4294967295/8>>1",
            "le",
            "le:x12/16>>4",
            "le:s12/15>>4",
            "le:s16/16>>4",
            "le:s/16",
            "le:u8/0",
        ] {
            assert_eq!(Format::parse(bad), None, "{bad}");
        }
    }
}
