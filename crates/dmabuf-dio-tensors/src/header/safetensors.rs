// SPDX-License-Identifier: MIT OR Apache-2.0
//! The header of a safetensors file: 8 bytes of length, then JSON.
//!
//! The crate `safetensors` has the types and checks of tensors. Its own reader needs the whole file
//! in memory, takes the last of two equal names, and needs several times the memory of the header.

use std::fmt;
use std::io::Read;

use ::safetensors::tensor::{Metadata as Checked, TensorInfo};
use ::safetensors::{Dtype as Theirs, SafeTensorError};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use super::parsed::{Header, HeaderError, MAX_KEYS, MAX_TENSORS, check_names, check_unique};
use crate::byte_order::ByteOrder;
use crate::dtype::Dtype;
use crate::format::Format;
use crate::malformed::{Malformed, short};
use crate::metadata::{Metadata, Value};
use crate::tensor::Tensor;

/// The longest header, as in the `safetensors` crate.
pub(crate) const MAX_HEADER: u64 = 100_000_000;
pub(crate) const MAX_DIMENSIONS: usize = 64;
/// The key of the metadata, among the names of the tensors.
pub(crate) const METADATA: &str = "__metadata__";
/// The length before the header.
const PREFIX: u64 = 8;

/// Parses the header of a safetensors file of `len` bytes, which `file` reads from its start.
///
/// # Errors
///
/// [`HeaderError`].
pub fn parse(mut file: impl Read, len: u64) -> Result<Header, HeaderError> {
    if len < PREFIX {
        return Err(Malformed::Truncated { len, needed: PREFIX }.into());
    }
    let mut prefix = [0; PREFIX as usize];
    file.read_exact(&mut prefix)?;
    let header = u64::from_le_bytes(prefix);
    if header > MAX_HEADER {
        let what = "a header of bytes:";
        return Err(Malformed::TooLarge { what, value: header, limit: MAX_HEADER }.into());
    }
    let start = PREFIX + header;
    if start > len {
        return Err(Malformed::Truncated { len, needed: start }.into());
    }
    let mut bytes = vec![0; header as usize];
    file.read_exact(&mut bytes)?;
    let text = std::str::from_utf8(&bytes)
        .map_err(|error| Malformed::Utf8 { at: PREFIX + error.valid_up_to() as u64 })?;
    let fields = fields(text)?;
    drop(bytes);
    Ok(check(fields, start, len)?)
}

/// The entries of the JSON, unchecked.
#[derive(Default)]
struct Fields {
    /// Twice an option: whether the key occurs, and whether it is null.
    #[allow(clippy::option_option, reason = "absent and null are two things")]
    metadata: Option<Option<Vec<(String, Value)>>>,
    tensors: Vec<(String, TensorInfo)>,
    /// The reason of a failure, which serde's error cannot carry.
    problem: Option<Malformed>,
}

fn fields(text: &str) -> Result<Fields, Malformed> {
    let mut fields = Fields::default();
    let mut json = serde_json::Deserializer::from_str(text);
    let result = Object(&mut fields).deserialize(&mut json).and_then(|()| json.end());
    match (result, fields.problem.take()) {
        (_, Some(problem)) => Err(problem),
        (Err(error), None) => Err(Malformed::Json { message: short(&error.to_string()) }),
        (Ok(()), None) => Ok(fields),
    }
}

/// Checks everything that a header promises.
fn check(mut fields: Fields, start: u64, len: u64) -> Result<Header, Malformed> {
    fields.tensors.sort_by_key(|(_, info)| info.data_offsets);
    let mut tensors = Vec::with_capacity(fields.tensors.len());
    for (name, info) in &fields.tensors {
        let (from, to) = (info.data_offsets.0 as u64, info.data_offsets.1 as u64);
        let shape: Vec<u64> = info.shape.iter().map(|dim| *dim as u64).collect();
        let dtype = Dtype::of_safetensors(info.dtype).ok_or_else(|| Malformed::Unknown {
            what: "type",
            value: 0,
            name: short(name),
        })?;
        let bytes = to.checked_sub(from);
        match (dtype.byte_len(&shape), bytes) {
            (None, _) => return Err(Malformed::Shape { name: short(name) }),
            (Some(right), Some(found)) if right == found => {}
            (Some(_), found) => {
                return Err(Malformed::Length { name: short(name), found: found.unwrap_or(0) });
            }
        }
        let end = start.checked_add(to).filter(|end| *end <= len).ok_or_else(|| {
            Malformed::OutOfFile { name: short(name), end: start.saturating_add(to), len }
        })?;
        tensors.push(Tensor {
            name: name.clone(),
            dtype,
            shape,
            file: 0,
            range: start + from..end,
            byte_order: ByteOrder::Little,
        });
    }
    check_names(&tensors)?;
    check_places(&tensors, start)?;
    // Checked last: its errors say less.
    let checked = Checked::new(None, fields.tensors).map_err(refused)?;
    let end = start + checked.data_len() as u64;
    if end != len {
        return Err(Malformed::Rest { end, len });
    }
    let metadata = fields.metadata.flatten();
    let keys = metadata.iter().flatten().map(|(key, _)| key.as_str());
    check_unique("key", keys.collect())?;
    let metadata = Metadata::new(metadata);
    Ok(Header { format: Format::Safetensors, metadata, tensors })
}

/// Fails if tensors, in the order of their bytes, overlap or leave holes.
fn check_places(tensors: &[Tensor], start: u64) -> Result<(), Malformed> {
    let mut end = start;
    for Tensor { name, range, .. } in tensors {
        if range.start != end {
            let (found, expected) = (range.start - start, end - start);
            return Err(Malformed::Place { name: short(name), found, expected });
        }
        end = range.end;
    }
    Ok(())
}

fn refused(error: SafeTensorError) -> Malformed {
    match error {
        SafeTensorError::InvalidOffset(name) => {
            Malformed::Safetensors(SafeTensorError::InvalidOffset(short(&name)))
        }
        error => Malformed::Safetensors(error),
    }
}

/// The object at the top.
struct Object<'f>(&'f mut Fields);

impl<'de> DeserializeSeed<'de> for Object<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Object<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let fields = self.0;
        while let Some(key) = map.next_key::<String>()? {
            if key == METADATA {
                let problem = match (&fields.metadata, map.next_value::<Option<Pairs>>()?) {
                    (Some(_), _) => Malformed::Duplicate { what: "key", name: key },
                    (None, Some(Pairs { too_many: true, .. })) => too_many("keys:", MAX_KEYS),
                    (None, pairs) => {
                        fields.metadata = Some(pairs.map(|pairs| pairs.pairs));
                        continue;
                    }
                };
                fields.problem = Some(problem);
                return Err(A::Error::custom("metadata"));
            }
            if fields.tensors.len() as u64 >= MAX_TENSORS {
                fields.problem = Some(too_many("tensors:", MAX_TENSORS));
                return Err(A::Error::custom("tensors"));
            }
            let Entry { dtype, shape: Shape(shape), data_offsets } = map.next_value()?;
            fields.tensors.push((key, TensorInfo { dtype, shape, data_offsets }));
        }
        Ok(())
    }
}

fn too_many(what: &'static str, limit: u64) -> Malformed {
    Malformed::TooLarge { what, value: limit + 1, limit }
}

/// A tensor's entry: the crate's `TensorInfo` with a bounded shape.
#[derive(Deserialize)]
struct Entry {
    dtype: Theirs,
    shape: Shape,
    data_offsets: (usize, usize),
}

struct Shape(Vec<usize>);

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        struct Dimensions;

        impl<'de> Visitor<'de> for Dimensions {
            type Value = Shape;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "at most {MAX_DIMENSIONS} dimensions")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Shape, A::Error> {
                let mut shape = Vec::new();
                while let Some(dimension) = seq.next_element()? {
                    if shape.len() == MAX_DIMENSIONS {
                        return Err(A::Error::invalid_length(MAX_DIMENSIONS + 1, &self));
                    }
                    shape.push(dimension);
                }
                Ok(Shape(shape))
            }
        }

        json.deserialize_seq(Dimensions)
    }
}

/// The object `__metadata__`.
struct Pairs {
    pairs: Vec<(String, Value)>,
    too_many: bool,
}

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        struct Strings;

        impl<'de> Visitor<'de> for Strings {
            type Value = Pairs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut found = Pairs { pairs: Vec::new(), too_many: false };
                while let Some((key, value)) = map.next_entry::<String, String>()? {
                    found.too_many = found.pairs.len() as u64 >= MAX_KEYS;
                    if !found.too_many {
                        found.pairs.push((key, Value::String(value)));
                    }
                }
                Ok(found)
            }
        }

        json.deserialize_map(Strings)
    }
}
