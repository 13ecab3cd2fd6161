// SPDX-License-Identifier: MIT OR Apache-2.0
//! The typed values of GGUF.

use std::io::Read;

use super::cursor::{Cursor, MAX_HEADER};
use super::parsed::HeaderError;
use crate::malformed::{Malformed, short};
use crate::metadata::{Array, Strings, Value};

// enum gguf_type in gguf.h
const U8: u32 = 0;
const I8: u32 = 1;
const U16: u32 = 2;
const I16: u32 = 3;
const U32: u32 = 4;
const I32: u32 = 5;
const F32: u32 = 6;
const BOOL: u32 = 7;
const STRING: u32 = 8;
const ARRAY: u32 = 9;
const U64: u32 = 10;
const I64: u32 = 11;
const F64: u32 = 12;

/// Reads the type and the value of a key.
pub(super) fn value<R: Read>(file: &mut Cursor<R>, key: &str) -> Result<Value, HeaderError> {
    Ok(match file.u32()? {
        U8 => Value::U8(file.number().map(u8::from_le_bytes)?),
        I8 => Value::I8(file.number().map(i8::from_le_bytes)?),
        U16 => Value::U16(file.number().map(u16::from_le_bytes)?),
        I16 => Value::I16(file.number().map(i16::from_le_bytes)?),
        U32 => Value::U32(file.u32()?),
        I32 => Value::I32(file.number().map(i32::from_le_bytes)?),
        F32 => Value::F32(file.number().map(f32::from_le_bytes)?),
        BOOL => Value::Bool(flag(file.array::<1>()?[0], key)?),
        // Most are text; nothing here needs them to be.
        STRING => match String::from_utf8(file.string(MAX_HEADER)?) {
            Ok(text) => Value::String(text),
            Err(error) => Value::Bytes(error.into_bytes()),
        },
        ARRAY => Value::Array(array(file, key)?),
        U64 => Value::U64(file.u64()?),
        I64 => Value::I64(file.number().map(i64::from_le_bytes)?),
        F64 => Value::F64(file.number().map(f64::from_le_bytes)?),
        other => return Err(unknown("value type", other.into(), key)),
    })
}

fn array<R: Read>(file: &mut Cursor<R>, key: &str) -> Result<Array, HeaderError> {
    let kind = file.u32()?;
    let count = file.u64()?;
    Ok(match kind {
        U8 => Array::U8(file.bytes(count)?),
        I8 => Array::I8(numbers(file, count, i8::from_le_bytes)?),
        U16 => Array::U16(numbers(file, count, u16::from_le_bytes)?),
        I16 => Array::I16(numbers(file, count, i16::from_le_bytes)?),
        U32 => Array::U32(numbers(file, count, u32::from_le_bytes)?),
        I32 => Array::I32(numbers(file, count, i32::from_le_bytes)?),
        F32 => Array::F32(numbers(file, count, f32::from_le_bytes)?),
        BOOL => {
            let flags = file.bytes(count)?;
            Array::Bool(flags.into_iter().map(|byte| flag(byte, key)).collect::<Result<_, _>>()?)
        }
        STRING => {
            // Each has at least its length.
            file.check(count, 8)?;
            let mut strings = Strings::default();
            for _ in 0..count {
                strings.push(&file.string(MAX_HEADER)?);
            }
            Array::String(strings)
        }
        ARRAY => return Err(Malformed::Nested { name: short(key) }.into()),
        U64 => Array::U64(numbers(file, count, u64::from_le_bytes)?),
        I64 => Array::I64(numbers(file, count, i64::from_le_bytes)?),
        F64 => Array::F64(numbers(file, count, f64::from_le_bytes)?),
        other => return Err(unknown("value type", other.into(), key)),
    })
}

fn numbers<R: Read, T, const N: usize>(
    file: &mut Cursor<R>,
    count: u64,
    from: impl Fn([u8; N]) -> T,
) -> Result<Vec<T>, HeaderError> {
    file.check(count, N as u64)?;
    (0..count).map(|_| file.number().map(&from)).collect()
}

fn flag(byte: u8, key: &str) -> Result<bool, HeaderError> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(unknown("bool", other.into(), key)),
    }
}

fn unknown(what: &'static str, value: u64, key: &str) -> HeaderError {
    Malformed::Unknown { what, value, name: short(key) }.into()
}
