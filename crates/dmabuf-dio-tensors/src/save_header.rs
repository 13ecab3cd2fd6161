// SPDX-License-Identifier: MIT OR Apache-2.0
//! The header of a safetensors file that is to be written, byte for byte as safetensors 0.8 writes it
//! (`prepare()` in its `tensor.rs`; the format is described in its README).
//!
//! Tensors are sorted by type, the one with the largest alignment first, then by name. The JSON has no
//! spaces between its tokens, and is followed by as many as make its length a multiple of 8. There is
//! one difference: the keys of the metadata are sorted. safetensors writes them in the random order of
//! a hash map (its issue 584), so that equal content has different bytes each time.

use std::collections::BTreeMap;

use serde::ser::{Serialize, SerializeMap as _, Serializer};

use crate::dtype::Dtype;
use crate::header::{MAX_DIMENSIONS, MAX_HEADER, MAX_KEYS, MAX_TENSORS, METADATA, check_unique};
use crate::malformed::{Malformed, short};
use crate::outline::Outline;

/// What the length of the JSON is a multiple of, in bytes.
const ALIGN: usize = 8;

/// The keys and values of a header.
pub(crate) type Keys = BTreeMap<String, String>;

/// What comes first in a file, and what follows.
#[derive(Debug)]
pub(crate) struct Written {
    /// The length of the JSON, and the JSON.
    pub(crate) bytes: Vec<u8>,
    /// Index and length in bytes of each tensor, in the order of the file.
    pub(crate) parts: Vec<(usize, u64)>,
    /// Length of the file in bytes.
    pub(crate) len: u64,
}

/// Checks tensors, and writes their header.
pub(crate) fn write(tensors: &[Outline], metadata: Option<&Keys>) -> Result<Written, Malformed> {
    limit("tensors:", tensors.len() as u64, MAX_TENSORS)?;
    limit("keys:", metadata.map_or(0, |keys| keys.len() as u64), MAX_KEYS)?;
    check_unique("tensor", tensors.iter().map(|tensor| tensor.name.as_str()).collect())?;
    let mut sorted = tensors
        .iter()
        .enumerate()
        .map(|(index, tensor)| Ok((rank(tensor)?, index)))
        .collect::<Result<Vec<_>, Malformed>>()?;
    sorted.sort_by(|(left, one), (right, other)| {
        right.cmp(left).then_with(|| tensors[*one].name.cmp(&tensors[*other].name))
    });
    let (mut parts, mut entries, mut end) = (Vec::new(), Vec::new(), 0u64);
    for (_, index) in sorted {
        let Outline { name, dtype, shape } = &tensors[index];
        let shape_error = || Malformed::Shape { name: short(name) };
        let len = byte_len(*dtype, shape).ok_or_else(shape_error)?;
        let start = end;
        end = start.checked_add(len).ok_or_else(shape_error)?;
        parts.push((index, len));
        entries.push((&**name, Entry { dtype: dtype.name(), shape, data_offsets: (start, end) }));
    }
    let json = serde_json::to_string(&Header { metadata, entries: &entries })
        .map_err(|error| Malformed::Json { message: error.to_string() })?;
    let padded = json.len().next_multiple_of(ALIGN);
    limit("a header of bytes:", padded as u64, MAX_HEADER)?;
    let mut bytes = (padded as u64).to_le_bytes().to_vec();
    bytes.extend(json.as_bytes());
    bytes.resize(ALIGN + padded, b' ');
    // No file is that long, which the save notices.
    let len = end.saturating_add(bytes.len() as u64);
    Ok(Written { bytes, parts, len })
}

fn limit(what: &'static str, value: u64, limit: u64) -> Result<(), Malformed> {
    if value <= limit { Ok(()) } else { Err(Malformed::TooLarge { what, value, limit }) }
}

/// The place of a tensor's type in the order of alignment.
fn rank(tensor: &Outline) -> Result<usize, Malformed> {
    let Outline { name, dtype, shape } = tensor;
    if name == METADATA {
        return Err(Malformed::Reserved { name: name.clone() });
    }
    limit("dimensions:", shape.len() as u64, MAX_DIMENSIONS as u64)?;
    Dtype::SAFETENSORS.iter().position(|one| one == dtype).ok_or_else(|| Malformed::Unknown {
        what: "the GGML type",
        value: if let Dtype::Ggml(ggml) = dtype { ggml.id().into() } else { 0 },
        name: short(name),
    })
}

/// The length of a tensor in bytes. `None` if safetensors would refuse to read it: it multiplies all
/// dimensions, also if one of them is 0.
pub(crate) fn byte_len(dtype: Dtype, shape: &[u64]) -> Option<u64> {
    let count = shape.iter().try_fold(1u64, |count, dim| count.checked_mul(*dim))?;
    count.checked_mul(64)?;
    dtype.byte_len(shape)
}

/// Its keys are in the order in which safetensors writes them.
struct Header<'a> {
    metadata: Option<&'a Keys>,
    entries: &'a [(&'a str, Entry<'a>)],
}

/// The fields are in that order, too.
#[derive(serde::Serialize)]
struct Entry<'a> {
    dtype: &'static str,
    shape: &'a [u64],
    data_offsets: (u64, u64),
}

impl Serialize for Header<'_> {
    fn serialize<S: Serializer>(&self, json: S) -> Result<S::Ok, S::Error> {
        let mut map = json.serialize_map(None)?;
        if let Some(metadata) = self.metadata {
            map.serialize_entry(METADATA, metadata)?;
        }
        for (name, entry) in self.entries {
            map.serialize_entry(name, entry)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(tensors: &[Outline]) -> Malformed {
        write(tensors, None).expect_err("refused")
    }

    #[test]
    fn header_is_written_as_the_format_says() {
        let tensors = [
            Outline::new("b", Dtype::U8, [3]),
            Outline::new("é\"\u{1}", Dtype::F4, [2, 2]),
            Outline::new("a", Dtype::U8, []),
            Outline::new("none", Dtype::F64, [0, 7]),
        ];
        let keys = Keys::from([("k".into(), "v".into()), ("a".into(), "ü".into())]);
        let written = write(&tensors, Some(&keys)).expect("a header");
        let json = concat!(
            r#"{"__metadata__":{"a":"ü","k":"v"},"#,
            r#""none":{"dtype":"F64","shape":[0,7],"data_offsets":[0,0]},"#,
            r#""a":{"dtype":"U8","shape":[],"data_offsets":[0,1]},"#,
            r#""b":{"dtype":"U8","shape":[3],"data_offsets":[1,4]},"#,
            r#""é\"\u0001":{"dtype":"F4","shape":[2,2],"data_offsets":[4,6]}}"#
        );
        let (length, text) = written.bytes.split_at(8);
        assert_eq!(text.trim_ascii_end(), json.as_bytes());
        assert_eq!(u64::from_le_bytes(length.try_into().expect("8 bytes")), text.len() as u64);
        assert!(text.len() % 8 == 0 && text.len() - json.len() < 8);
        assert_eq!(written.parts, [(3, 0), (2, 1), (0, 3), (1, 2)]);
        assert_eq!(written.len, written.bytes.len() as u64 + 6);
        let empty = write(&[], None).expect("a header").bytes;
        assert_eq!(empty, b"\x08\0\0\0\0\0\0\0{}      ");
        let empty = write(&[], Some(&Keys::new())).expect("a header").bytes;
        assert_eq!(empty[8..], *b"{\"__metadata__\":{}}     ");
    }

    #[test]
    fn hostile_tensors_are_refused() {
        let twice = [
            Outline::new("a", Dtype::U8, [1]),
            Outline::new("b", Dtype::U8, [1]),
            Outline::new("a", Dtype::F32, [1]),
        ];
        assert!(matches!(refused(&twice), Malformed::Duplicate { what: "tensor", .. }));
        let reserved = refused(&[Outline::new("__metadata__", Dtype::U8, [1])]);
        assert!(matches!(reserved, Malformed::Reserved { .. }), "{reserved}");
        for shape in [
            vec![u64::MAX, 2],
            vec![1 << 32, 1 << 32],
            // Its bits overflow.
            vec![1 << 60],
            // It has no byte, but readers multiply from the left.
            vec![1 << 32, 1 << 32, 0],
        ] {
            let error = refused(&[Outline::new("a", Dtype::U8, shape)]);
            assert!(matches!(error, Malformed::Shape { .. }), "{error}");
        }
        assert!(write(&[Outline::new("a", Dtype::U8, [0, u64::MAX, u64::MAX])], None).is_ok());
        for (dtype, shape) in [(Dtype::F4, vec![3]), (Dtype::F4, vec![]), (Dtype::F6E2M3, vec![2])]
        {
            let error = refused(&[Outline::new("a", dtype, shape)]);
            assert!(matches!(error, Malformed::Shape { .. }), "{error}");
        }
        // Together they are longer than any file.
        let long = |name| Outline::new(name, Dtype::U8, [u64::MAX >> 6]);
        let many: Vec<_> = (0..65).map(|number| long(format!("{number}"))).collect();
        assert!(matches!(refused(&many), Malformed::Shape { .. }));
        let quantised = refused(&[Outline::new("a", Dtype::of_ggml(2).expect("Q4_0"), [32])]);
        assert!(matches!(quantised, Malformed::Unknown { value: 2, .. }), "{quantised}");
        let deep = refused(&[Outline::new("a", Dtype::U8, [1; 65])]);
        assert!(matches!(deep, Malformed::TooLarge { what: "dimensions:", value: 65, limit: 64 }));
        let long = refused(&[Outline::new("n".repeat(100_000_000), Dtype::U8, [1])]);
        assert!(matches!(long, Malformed::TooLarge { what: "a header of bytes:", .. }));
    }
}
