// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keys and values of headers.

/// Keys and typed values of a header, in its order: `__metadata__` of safetensors, whose values are
/// strings, or the key-values of GGUF. No key occurs twice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata(Option<Vec<(String, Value)>>);

impl Metadata {
    pub(crate) const fn new(entries: Option<Vec<(String, Value)>>) -> Self {
        Self(entries)
    }

    fn entries(&self) -> &[(String, Value)] {
        self.0.as_deref().unwrap_or_default()
    }

    /// Whether the header has metadata, be it empty. A GGUF file always has; in a safetensors file
    /// `__metadata__` may be absent or null.
    pub fn is_present(&self) -> bool {
        self.0.is_some()
    }

    /// The value of a key. Takes time proportional to the number of keys.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entries().iter().find(|(found, _)| found == key).map(|(_, value)| value)
    }

    /// Keys and values, in the order of the header.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.entries().iter().map(|(key, value)| (key.as_str(), value))
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.entries().len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.entries().is_empty()
    }
}

/// A value of the types that GGUF has. Safetensors has strings only.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "named after their types")]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(String),
    /// A string of GGUF that is not UTF-8.
    Bytes(Vec<u8>),
    Array(Array),
    U64(u64),
    I64(i64),
    F64(f64),
}

/// An array of one type. Arrays of arrays are refused, as GGML does.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "named after their types")]
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    F32(Vec<f32>),
    Bool(Vec<bool>),
    String(Strings),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F64(Vec<f64>),
}

impl Value {
    /// The string, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// The number, if it is a non-negative integer.
    pub fn as_u64(&self) -> Option<u64> {
        match *self {
            Self::U8(number) => Some(number.into()),
            Self::U16(number) => Some(number.into()),
            Self::U32(number) => Some(number.into()),
            Self::U64(number) => Some(number),
            Self::I8(number) => number.try_into().ok(),
            Self::I16(number) => number.try_into().ok(),
            Self::I32(number) => number.try_into().ok(),
            Self::I64(number) => number.try_into().ok(),
            _ => None,
        }
    }
}

/// Strings, stored contiguously: a vocabulary has hundreds of thousands. GGUF does not promise UTF-8:
/// tokens may be parts of characters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strings {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl Strings {
    /// Appends a string. The header's limit keeps the bytes below 4 GiB.
    pub(crate) fn push(&mut self, string: &[u8]) {
        self.bytes.extend_from_slice(string);
        self.ends.push(self.bytes.len() as u32);
    }

    /// Number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The bytes of the string at `index`, from 0.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)? as usize;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        Some(&self.bytes[start..end])
    }

    /// The bytes of all strings in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.len()).map(|index| self.get(index).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn string_arrays_keep_their_boundaries() {
        let mut strings = Strings::default();
        let all: [&[u8]; 5] = [b"", b"a", b"", b"\xff\xfe", b"xyz"];
        for bytes in all {
            strings.push(bytes);
        }
        assert_eq!(strings.iter().collect::<Vec<_>>(), all);
        assert_eq!((strings.len(), strings.get(5)), (5, None));
    }

    #[test]
    fn integers_of_all_widths_convert_to_u64() {
        assert_eq!(Value::I8(-1).as_u64(), None);
        assert_eq!(Value::I32(7).as_u64(), Some(7));
        assert_eq!(Value::U16(65_535).as_u64(), Some(65_535));
        assert_eq!(Value::F32(1.0).as_u64(), None);
        assert_eq!(Value::String("x".into()).as_str(), Some("x"));
    }
}
