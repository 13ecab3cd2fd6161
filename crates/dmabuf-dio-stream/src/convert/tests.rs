// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares conversions with a slow definition of the rule in other arithmetic.

use super::*;

fn format(text: &str) -> Format {
    text.parse().expect(text)
}

fn converted(from: &str, to: &str, bytes: &[u8]) -> Vec<u8> {
    let (from, to) = (Layout::uniform(format(from), 1), Layout::uniform(format(to), 1));
    let frames = bytes.len() / from.frame() as usize;
    let mut out = vec![0xa5; frames * to.frame() as usize];
    let mut converter = Converter::new(from, to).expect("a conversion");
    assert_eq!(converter.convert(bytes, &mut out), frames);
    out
}

/// A value by the rule: an integer by its numerator and its bits, or a number.
#[derive(Clone, Copy, Debug)]
enum Value {
    Integer(i128, u32),
    Number(f64),
}

fn read(format: Format, bytes: &[u8]) -> Value {
    let mut bytes = bytes.to_vec();
    if format.big_endian {
        bytes.reverse();
    }
    let raw = bytes.iter().rev().fold(0_u128, |sum, byte| sum << 8 | u128::from(*byte));
    let value = (raw >> format.shift & ((1 << format.bits) - 1)) as i128;
    let half = 1_i128 << (format.bits - 1);
    match (format.kind, format.bits) {
        (Encoding::Float, 32) => Value::Number(f64::from(f32::from_bits(raw as u32))),
        (Encoding::Float, _) => Value::Number(f64::from_bits(raw as u64)),
        (Encoding::Unsigned, bits) => Value::Integer(value - half, bits),
        (Encoding::Signed, bits) if value >= half => Value::Integer(value - 2 * half, bits),
        (Encoding::Signed, bits) => Value::Integer(value, bits),
    }
}

/// The nearest integer to a quotient, the even one of two.
fn nearest(numerator: i128, denominator: i128) -> i128 {
    let (whole, rest) = (numerator.div_euclid(denominator), numerator.rem_euclid(denominator));
    let up = 2 * rest > denominator || 2 * rest == denominator && whole % 2 != 0;
    whole + i128::from(up)
}

fn write(format: Format, value: Value) -> Vec<u8> {
    let (bits, size) = (format.bits, format.storage_bits as usize / 8);
    let most = (1_i128 << (bits - 1)) - 1;
    let integer = match value {
        Value::Integer(value, from) if format.kind != Encoding::Float => {
            if from <= bits {
                value << (bits - from)
            } else {
                nearest(value, 1 << (from - bits))
            }
        }
        Value::Number(number) if format.kind != Encoding::Float => {
            (number * 2_f64.powi(bits as i32 - 1)).round_ties_even() as i128
        }
        _ => 0,
    };
    let integer = integer.clamp(-most - 1, most);
    let mut bytes = match (format.kind, value) {
        (Encoding::Float, value) if bits == 32 => match value {
            // Rounded once: the scale is a power of two.
            Value::Integer(value, from) => value as f32 / 2_f32.powi(from as i32 - 1),
            Value::Number(number) => number as f32,
        }
        .to_le_bytes()
        .to_vec(),
        (Encoding::Float, Value::Integer(value, from)) => {
            (value as f64 / 2_f64.powi(from as i32 - 1)).to_le_bytes().to_vec()
        }
        (Encoding::Float, Value::Number(number)) => number.to_le_bytes().to_vec(),
        (Encoding::Unsigned, _) => ((integer + most + 1) << format.shift).to_le_bytes().to_vec(),
        (Encoding::Signed, _) => (integer << format.shift).to_le_bytes().to_vec(),
    };
    bytes.truncate(size);
    if format.big_endian {
        bytes.reverse();
    }
    bytes
}

/// All tested formats: each class, size, order and sign, with and without padding bits.
const FORMATS: [&str; 26] = [
    "le:s8/8>>0",
    "le:u8/8>>0",
    "le:s5/8>>2",
    "le:s16/16>>0",
    "be:s16/16>>0",
    "le:u16/16>>0",
    "be:u16/16>>0",
    "le:s12/16>>0",
    "le:s12/16>>4",
    "be:s12/16>>4",
    "be:u10/16>>3",
    "le:u12/16>>0",
    "le:s1/16>>7",
    "le:s32/32>>0",
    "be:u32/32>>0",
    "be:s24/32>>8",
    "le:u24/32>>0",
    "le:s20/32>>5",
    "le:s64/64>>0",
    "be:u64/64>>0",
    "le:s48/64>>16",
    "be:u20/64>>3",
    "le:f32/32>>0",
    "be:f32/32>>0",
    "le:f64/64>>0",
    "be:f64/64>>0",
];

/// Every byte, every 17th value of 16 bits, special ones, and others.
fn samples(of: Format) -> Vec<u8> {
    let size = of.storage_bits as usize / 8;
    let mut state = 1_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut raws: Vec<u64> = match of.kind {
        Encoding::Float => {
            let halves = (-300..300).map(|number| f64::from(number) / 256.0);
            let edges = [0.0, -0.0, 1.0, -1.0, 1.5, -7.0, 1e30, -1e30, 1e-30, f64::INFINITY];
            let near = [1.0 - 1e-7, 0.5 / 32768.0, 1.5 / 32768.0, 0.500_000_1 / 32768.0, f64::NAN];
            let numbers = halves.chain(edges).chain(near).chain([f64::NEG_INFINITY]);
            let wide = |number: f64| {
                if size == 4 { u64::from((number as f32).to_bits()) } else { number.to_bits() }
            };
            let mut all: Vec<u64> = numbers.map(wide).collect();
            all.extend((0..3000).map(|_| wide(f64::from(random() as i32) / f64::from(i32::MAX))));
            all
        }
        // With every last digit; the test below has every value.
        _ if size == 2 => (0..=u64::from(u16::MAX)).step_by(17).chain([1, 32767, 32769]).collect(),
        _ if size == 1 => (0..256).collect(),
        _ => (0..3000).map(|_| random()).chain([0, u64::MAX, 1 << 31, 1 << 63]).collect(),
    };
    // The last chunk is not full.
    raws.push(raws[0]);
    let bytes = |raw: u64| {
        let mut bytes = raw.to_le_bytes()[..size].to_vec();
        if of.big_endian {
            bytes.reverse();
        }
        bytes
    };
    raws.into_iter().flat_map(bytes).collect()
}

/// The samples as the rule converts them. NaN becomes 0 as an integer.
#[test]
fn every_pair_of_formats_converts_by_the_rule() {
    for from in FORMATS {
        let bytes = samples(format(from));
        let size = format(from).storage_bits as usize / 8;
        for to in FORMATS {
            let got = converted(from, to, &bytes);
            let out = format(to).storage_bits as usize / 8;
            for (one, other) in bytes.chunks_exact(size).zip(got.chunks_exact(out)) {
                let value = read(format(from), one);
                let wanted = write(format(to), value);
                let both_nan = matches!(value, Value::Number(number) if number.is_nan())
                    && format(to).kind == Encoding::Float;
                assert!(
                    other == wanted || both_nan,
                    "{from} to {to}: {one:x?} is {value:?}, became {other:x?} instead of {wanted:x?}"
                );
            }
        }
    }
}

/// Each of the 65,536 values, in each layout of 16 bits, through floating-point numbers and wider
/// integers, and back.
#[test]
fn sixteen_bit_values_survive_a_round_trip() {
    let all: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    for from in ["le:s16/16>>0", "be:s16/16>>0", "le:u16/16>>0", "be:u16/16>>0"] {
        for by in [
            "le:f32/32>>0",
            "be:f32/32>>0",
            "le:f64/64>>0",
            "be:s32/32>>0",
            "le:u24/32>>8",
            "le:s64/64>>0",
        ] {
            let back = converted(by, from, &converted(from, by, &all));
            assert!(back == all, "{from} by {by}");
        }
    }
    // A format of 12 bits does not keep the other bits.
    let top = |bytes: &[u8]| -> Vec<u16> {
        bytes.chunks_exact(2).map(|two| u16::from_le_bytes([two[0], two[1]]) & 0xfff0).collect()
    };
    for by in ["le:s16/16>>0", "le:s12/16>>0", "be:f32/32>>0"] {
        let back = converted(by, "le:s12/16>>4", &converted("le:s12/16>>4", by, &all));
        assert!(top(&back) == top(&all) && top(&back).len() == 65536, "by {by}");
    }
}

#[test]
fn well_known_values_convert_correctly() {
    let single = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let short = |values: &[i16]| values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let (a, b): (Vec<u8>, Vec<u8>) = (
        short(&[0, 1, -1, 32767, -32768]),
        single(&[0.0, 1.0 / 32768.0, -1.0 / 32768.0, 32767.0 / 32768.0, -1.0]),
    );
    assert_eq!(converted("le:s16/16>>0", "le:f32/32>>0", &a), b);
    let loud: Vec<u8> =
        single(&[1.0, 2.0, -1.0, -9.0, f32::NAN, f32::INFINITY, 0.5 / 128.0, 1.5 / 128.0]);
    let wanted: Vec<u8> =
        [127_i8, 127, -128, -128, 0, 127, 0, 2].iter().map(|value| *value as u8).collect();
    assert_eq!(converted("le:f32/32>>0", "le:s8/8>>0", &loud), wanted);
    // 12 bits at the left end, with noise below: the same number, and the same full scale.
    assert_eq!(converted("be:s12/16>>4", "le:s12/16>>0", &[0x80, 0x0f]), 0xf800_u16.to_le_bytes());
    assert_eq!(
        converted("le:s12/16>>0", "le:s16/16>>0", &0x07ff_u16.to_le_bytes()),
        0x7ff0_u16.to_le_bytes()
    );
}

/// Frames whose values have several formats, with room between them.
#[test]
fn frames_of_mixed_formats_convert() {
    let from = Layout::of(&[format("le:u8/8"), format("be:s12/16X2>>4"), format("le:s32/32")]);
    let to = Layout::of(&[
        format("le:f64/64"),
        format("le:s8/8"),
        format("le:u16/16"),
        format("le:s24/32>>8"),
    ]);
    assert_eq!((from.frame(), to.frame()), (12, 16));
    let frames = 2500;
    let mut state = 7_u32;
    let bytes: Vec<u8> = (0..frames * 12)
        .map(|_| {
            state = state.wrapping_mul(1_103_515_245).wrapping_add(12_345);
            (state >> 16) as u8
        })
        .collect();
    let mut out = vec![0xa5; frames * 16 + 3];
    let mut converter = Converter::new(from.clone(), to.clone()).expect("a conversion");
    assert_eq!(converter.convert(&bytes, &mut out), frames);
    for (frame, got) in bytes.chunks_exact(12).zip(out.chunks_exact(16)) {
        let mut wanted = [0; 16];
        for ((at, one), (out_at, other)) in from.values.iter().zip(&to.values) {
            let value = read(*one, &frame[*at..*at + one.bytes() as usize]);
            let bytes = write(*other, value);
            wanted[*out_at..*out_at + bytes.len()].copy_from_slice(&bytes);
        }
        assert_eq!(got, wanted, "of {frame:x?}");
    }
    assert_eq!(out[frames * 16..], [0xa5; 3], "nothing behind the last frame");
    assert!(!converter.is_identity());
}

#[test]
fn incompatible_layouts_are_refused() {
    let one = |text| Layout::uniform(format(text), 1);
    let two = Layout::uniform(format("le:s16/16"), 2);
    assert!(Converter::new(one("le:s16/16"), two).is_err());
    assert!(Converter::new(Layout::of(&[]), Layout::of(&[])).is_err());
    let half = Format { bits: 16, storage_bits: 16, kind: Encoding::Float, ..format("le:f32/32") };
    assert!(Converter::new(Layout::uniform(half, 1), one("le:s16/16")).is_err());
    assert!(Converter::new(one("be:s16/16"), one("be:s16/16")).expect("the same").is_identity());
}
