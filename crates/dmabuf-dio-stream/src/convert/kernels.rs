// SPDX-License-Identifier: MIT OR Apache-2.0
//! The loops of conversions, over values that lie one after the other. They are plain, short and
//! without calls, so that the compiler vectorises them.
//!
//! An integer between two formats is a signed number of its significant bits: half the range is
//! subtracted from an unsigned one.

/// The bits of an integer in memory that are its value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bits {
    pub(super) big_endian: bool,
    pub(super) signed: bool,
    /// From 1 to the bits in memory.
    pub(super) count: u32,
    pub(super) shift: u32,
}

macro_rules! integers {
    ($module:ident, $signed:ty, $unsigned:ty, $($size:literal => $raw:ty),+) => {
        pub(super) mod $module {
            use crate::convert::kernels::Bits;

            /// Reads values of `size` bytes in memory.
            pub(crate) fn unpack(from: &[u8], size: u64, bits: Bits, to: &mut [$signed]) {
                match (size, bits.big_endian) {
                    $(($size, false) => each::<$size>(from, bits, to, |raw| <$raw>::from_le_bytes(raw) as $unsigned),
                    ($size, true) => each::<$size>(from, bits, to, |raw| <$raw>::from_be_bytes(raw) as $unsigned),)+
                    _ => {}
                }
            }

            #[inline]
            fn each<const SIZE: usize>(
                from: &[u8],
                Bits { signed, count: bits, shift, .. }: Bits,
                to: &mut [$signed],
                raw: impl Fn([u8; SIZE]) -> $unsigned,
            ) {
                // Shifting to the left end and back repeats the sign.
                let (left, right) = (<$signed>::BITS - bits - shift, <$signed>::BITS - bits);
                let offset = if signed { 0 } else { <$signed>::MIN as $unsigned };
                for (bytes, value) in from.chunks_exact(SIZE).zip(to) {
                    let Ok(bytes) = <[u8; SIZE]>::try_from(bytes) else { continue };
                    *value = (((raw(bytes) << left) ^ offset) as $signed) >> right;
                }
            }

            /// Writes values of `size` bytes in memory.
            pub(crate) fn pack(from: &[$signed], size: u64, bits: Bits, to: &mut [u8]) {
                match (size, bits.big_endian) {
                    $(($size, false) => put::<$size>(from, bits, to, |value| (value as $raw).to_le_bytes()),
                    ($size, true) => put::<$size>(from, bits, to, |value| (value as $raw).to_be_bytes()),)+
                    _ => {}
                }
            }

            #[inline]
            fn put<const SIZE: usize>(
                from: &[$signed],
                Bits { signed, count: bits, shift, .. }: Bits,
                to: &mut [u8],
                raw: impl Fn($unsigned) -> [u8; SIZE],
            ) {
                let half = if signed { 0 } else { 1 << (bits - 1) };
                // The bits above the value repeat its sign.
                for (bytes, value) in to.chunks_exact_mut(SIZE).zip(from) {
                    bytes.copy_from_slice(&raw((value.wrapping_add(half) as $unsigned) << shift));
                }
            }

            /// Changes the number of significant bits and preserves full scale. Rounds to nearest,
            /// ties to even, and saturates.
            pub(crate) fn rescale(values: &mut [$signed], from: u32, to: u32) {
                if to >= from {
                    let by = to - from;
                    if by > 0 {
                        for value in values {
                            *value <<= by;
                        }
                    }
                    return;
                }
                let by = from - to;
                let (half, mask) = ((1 as $unsigned) << (by - 1), ((1 as $unsigned) << by) - 1);
                let most = ((1 as $signed) << (to - 1)) - 1;
                for value in values {
                    let (whole, rest) = (*value >> by, *value as $unsigned & mask);
                    let up = (rest + (half - 1) + (whole as $unsigned & 1)) >> by;
                    *value = (whole + up as $signed).min(most);
                }
            }
        }
    };
}

integers!(narrow, i32, u32, 1 => u8, 2 => u16, 4 => u32);
integers!(wide, i64, u64, 8 => u64);

macro_rules! floats {
    ($module:ident, $float:ty, $size:literal) => {
        pub(super) mod $module {
            /// Reads values.
            pub(crate) fn unpack(from: &[u8], big_endian: bool, to: &mut [$float]) {
                let each = |bytes: &[u8]| <[u8; $size]>::try_from(bytes).unwrap_or_default();
                let pairs = from.chunks_exact($size).zip(to);
                if big_endian {
                    pairs.for_each(|(bytes, value)| *value = <$float>::from_be_bytes(each(bytes)));
                } else {
                    pairs.for_each(|(bytes, value)| *value = <$float>::from_le_bytes(each(bytes)));
                }
            }

            /// Writes values.
            pub(crate) fn pack(from: &[$float], big_endian: bool, to: &mut [u8]) {
                let pairs = to.chunks_exact_mut($size).zip(from);
                if big_endian {
                    pairs.for_each(|(bytes, value)| bytes.copy_from_slice(&value.to_be_bytes()));
                } else {
                    pairs.for_each(|(bytes, value)| bytes.copy_from_slice(&value.to_le_bytes()));
                }
            }
        }
    };
}

floats!(single, f32, 4);
floats!(double, f64, 8);

/// 2 to the power of `exponent`, from -63 to 63.
fn power(exponent: i32) -> f64 {
    f64::from_bits(((1023 + i64::from(exponent)) as u64) << 52)
}

/// Integers of `bits` bits as numbers from -1 to less than 1.
pub(super) fn to_single(from: &[i32], bits: u32, to: &mut [f32]) {
    let scale = power(1 - bits as i32) as f32;
    from.iter().zip(to).for_each(|(value, float)| *float = *value as f32 * scale);
}

/// As [`to_single`].
pub(super) fn to_double(from: &[i32], bits: u32, to: &mut [f64]) {
    let scale = power(1 - bits as i32);
    from.iter().zip(to).for_each(|(value, float)| *float = f64::from(*value) * scale);
}

/// As [`to_single`].
pub(super) fn wide_to_single(from: &[i64], bits: u32, to: &mut [f32]) {
    let scale = power(1 - bits as i32) as f32;
    from.iter().zip(to).for_each(|(value, float)| *float = *value as f32 * scale);
}

/// As [`to_single`].
pub(super) fn wide_to_double(from: &[i64], bits: u32, to: &mut [f64]) {
    let scale = power(1 - bits as i32);
    from.iter().zip(to).for_each(|(value, float)| *float = *value as f64 * scale);
}

/// Numbers in more bits.
pub(super) fn widen(from: &[f32], to: &mut [f64]) {
    from.iter().zip(to).for_each(|(value, wider)| *wider = f64::from(*value));
}

/// The most bits that [`of_single`] rounds correctly.
pub(super) const SINGLE: u32 = 16;

/// Numbers as integers of at most [`SINGLE`] bits, rounded to nearest, ties to even, and saturated.
/// NaN becomes 0.
pub(super) fn of_single(from: &[f32], bits: u32, to: &mut [i32]) {
    // The sum has no room for a fraction, and the last bits of its mantissa are the integer.
    const ROUND: f32 = (3 << 22) as f32;
    let scale = power(bits as i32 - 1) as f32;
    let (least, most) = (-scale, scale - 1.0);
    for (float, value) in from.iter().zip(to) {
        let scaled = *float * scale;
        let scaled = if scaled.is_nan() { 0.0 } else { scaled };
        let scaled = if scaled < most { scaled } else { most };
        let scaled = if scaled > least { scaled } else { least };
        *value = ((scaled + ROUND).to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    }
}

/// As [`of_single`], for up to 32 bits.
pub(super) fn of_double(from: &[f64], bits: u32, to: &mut [i32]) {
    const ROUND: f64 = (3_u64 << 51) as f64;
    let scale = power(bits as i32 - 1);
    let (least, most) = (-scale, scale - 1.0);
    for (float, value) in from.iter().zip(to) {
        let scaled = *float * scale;
        let scaled = if scaled.is_nan() { 0.0 } else { scaled };
        let scaled = if scaled < most { scaled } else { most };
        let scaled = if scaled > least { scaled } else { least };
        *value = (scaled + ROUND).to_bits() as i32;
    }
}

/// As [`of_single`], for up to 64 bits. Not vectorised.
pub(super) fn wide_of_double(from: &[f64], bits: u32, to: &mut [i64]) {
    let scale = power(bits as i32 - 1);
    let (least, most) = (i64::MIN >> (64 - bits), i64::MAX >> (64 - bits));
    for (float, value) in from.iter().zip(to) {
        // The cast saturates, and turns NaN into 0.
        *value = ((*float * scale).round_ties_even() as i64).clamp(least, most);
    }
}

/// Copies values of `size` bytes between places `stride` bytes apart and consecutive ones.
pub(super) fn gather(from: &[u8], stride: usize, size: u64, to: &mut [u8]) {
    match size {
        1 => spread::<1>(from, stride, to, 1),
        2 => spread::<2>(from, stride, to, 2),
        4 => spread::<4>(from, stride, to, 4),
        _ => spread::<8>(from, stride, to, 8),
    }
}

/// The way back from [`gather`].
pub(super) fn scatter(from: &[u8], size: u64, to: &mut [u8], stride: usize) {
    match size {
        1 => spread::<1>(from, 1, to, stride),
        2 => spread::<2>(from, 2, to, stride),
        4 => spread::<4>(from, 4, to, stride),
        _ => spread::<8>(from, 8, to, stride),
    }
}

#[inline]
fn spread<const SIZE: usize>(from: &[u8], stride: usize, to: &mut [u8], step: usize) {
    // The last piece may be shorter than the stride.
    for (from, to) in from.chunks(stride).zip(to.chunks_mut(step)) {
        if let (Some(from), Some(to)) = (from.get(..SIZE), to.get_mut(..SIZE)) {
            to.copy_from_slice(from);
        }
    }
}
