// SPDX-License-Identifier: MIT OR Apache-2.0
//! The header of a GGUF file, versions 2 and 3, as docs/gguf.md of ggml has it. Only the version
//! tells the byte order: in the wrong order it is a large number.
//!
//! Where the document leaves a choice, this parser chooses as GGML does (`gguf_init_from_file`): no
//! arrays of arrays, at most four dimensions, tensors without holes.

use std::io::Read;

use super::cursor::Cursor;
use super::gguf_value::value;
use super::parsed::{Header, HeaderError, MAX_KEYS, MAX_TENSORS, check_names, check_unique};
use crate::byte_order::ByteOrder;
use crate::dtype::Dtype;
use crate::format::Format;
use crate::malformed::{Malformed, short};
use crate::metadata::{Metadata, Value};
use crate::tensor::Tensor;

pub(super) const MAGIC: [u8; 4] = *b"GGUF";

/// `GGML_MAX_DIMS`
const MAX_DIMENSIONS: u32 = 4;
/// The longest key of the format, and of a tensor's name here.
const MAX_NAME: u64 = 65_535;
/// `GGUF_DEFAULT_ALIGNMENT`
const ALIGNMENT: u64 = 32;
/// The shortest key: its length, one byte of type, one byte of value. The type has 4 bytes.
const LEAST_KEY: u64 = 8 + 4 + 1;
/// The shortest tensor: length of the name, count of dimensions, type, offset.
const LEAST_TENSOR: u64 = 8 + 4 + 4 + 8;

/// Parses the header of a GGUF file of `len` bytes, which `file` reads from its start.
///
/// `file` should be buffered: it is read in small pieces.
///
/// # Errors
///
/// [`HeaderError`].
pub fn parse(file: impl Read, len: u64) -> Result<Header, HeaderError> {
    let mut file = Cursor::new(file, len);
    let magic = u32::from_le_bytes(file.array()?);
    if magic.to_le_bytes() != MAGIC {
        let name = String::new();
        return Err(Malformed::Unknown { what: "magic", value: magic.into(), name }.into());
    }
    let mut version = file.u32()?;
    // gguf-py decides in the same way.
    if version.trailing_zeros() >= 16 && version != 0 {
        version = version.swap_bytes();
        file.set_order(ByteOrder::Big);
    }
    if !(2..=3).contains(&version) {
        return Err(Malformed::Version { version }.into());
    }
    let tensors = count(&mut file, "tensors:", MAX_TENSORS)?;
    let keys = count(&mut file, "keys:", MAX_KEYS)?;
    file.check(keys, LEAST_KEY)?;
    let mut entries = Vec::new();
    for _ in 0..keys {
        let key = file.text(MAX_NAME)?;
        let value = value(&mut file, &key)?;
        entries.push((key, value));
    }
    check_unique("key", entries.iter().map(|(key, _)| key.as_str()).collect())?;
    let metadata = Metadata::new(Some(entries));
    let alignment = alignment(&metadata)?;

    file.check(tensors, LEAST_TENSOR)?;
    let mut found = Vec::new();
    for _ in 0..tensors {
        found.push(tensor(&mut file)?);
    }
    check_names(&found)?;
    place(&mut found, file.at(), alignment, len)?;
    Ok(Header { format: Format::Gguf, metadata, tensors: found })
}

fn count<R: Read>(
    file: &mut Cursor<R>,
    what: &'static str,
    limit: u64,
) -> Result<u64, HeaderError> {
    let value = file.u64()?;
    if value > limit {
        return Err(Malformed::TooLarge { what, value, limit }.into());
    }
    Ok(value)
}

fn alignment(metadata: &Metadata) -> Result<u64, Malformed> {
    match metadata.get("general.alignment") {
        None => Ok(ALIGNMENT),
        Some(Value::U32(alignment)) if alignment.is_power_of_two() => Ok(u64::from(*alignment)),
        Some(_) => Err(Malformed::Alignment),
    }
}

/// Reads a tensor. Its range is relative to the data yet.
fn tensor<R: Read>(file: &mut Cursor<R>) -> Result<Tensor, HeaderError> {
    let name = file.text(MAX_NAME)?;
    let unknown = |what, value: u32| {
        HeaderError::from(Malformed::Unknown { what, value: value.into(), name: short(&name) })
    };
    let dimensions = file.u32()?;
    if dimensions > MAX_DIMENSIONS {
        return Err(unknown("number of dimensions", dimensions));
    }
    let mut shape = Vec::with_capacity(dimensions as usize);
    for _ in 0..dimensions {
        shape.push(file.u64()?);
    }
    shape.reverse();
    let id = file.u32()?;
    let dtype = Dtype::of_ggml(id).ok_or_else(|| unknown("tensor type", id))?;
    let offset = file.u64()?;
    let row = shape.last().copied().unwrap_or(1);
    let bytes = dtype
        .byte_len(&shape)
        .filter(|_| row % dtype.block().elements == 0)
        .ok_or_else(|| Malformed::Shape { name: short(&name) })?;
    let end = offset.checked_add(bytes).ok_or_else(|| Malformed::OutOfFile {
        name: short(&name),
        end: u64::MAX,
        len: 0,
    })?;
    Ok(Tensor { name, dtype, shape, file: 0, range: offset..end, byte_order: file.order() })
}

/// Moves the ranges to their places in the file, and checks them.
fn place(tensors: &mut [Tensor], header: u64, alignment: u64, len: u64) -> Result<(), Malformed> {
    tensors.sort_by_key(|tensor| (tensor.range.start, tensor.range.end));
    let too_long = |name: &str, end| Malformed::OutOfFile { name: short(name), end, len };
    // Both are below 2^33, so this cannot overflow.
    let data = header.next_multiple_of(alignment);
    let mut expected = 0;
    for Tensor { name, range, .. } in tensors {
        if range.start != expected {
            return Err(Malformed::Place { name: short(name), found: range.start, expected });
        }
        let end = data.checked_add(range.end).ok_or_else(|| too_long(name, u64::MAX))?;
        if end > len {
            return Err(too_long(name, end));
        }
        // At the very end nothing can follow.
        expected = range.end.checked_next_multiple_of(alignment).unwrap_or(u64::MAX);
        *range = data + range.start..end;
    }
    Ok(())
}
