// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conversion of samples between formats, by the CPU.
//!
//! One rule holds for all formats: **conversion preserves full scale**. Full scale is ±1.0 for a
//! floating-point number, and the range of its significant bits ([`Format::bits`]) for an integer,
//! whatever its size in memory. So a signed integer of `b` bits with the value `v` is the number `v
//! / 2^(b-1)`, from -1.0 to just below 1.0, and an unsigned one, whose middle is zero, `(v -
//! 2^(b-1)) / 2^(b-1)`. SigMF readers scale in the same way.
//!
//! - Integers become wider by zeros at their end, which is exact: 12 bits in 16 are multiplied by 16.
//! - If bits are lost, values are rounded to nearest, ties to even.
//! - Values beyond full scale become the largest or smallest integer, and NaN becomes 0. Values are
//!   not limited between floating-point formats.
//! - A conversion to `f32` and back preserves integers of up to 24 bits; a conversion to `f64` and
//!   back preserves up to 53 bits.
//! - Insignificant bits in memory are ignored when read. They are written as zeros below the value
//!   and as copies of its sign above it.
//!
//! [`Converter`] converts bytes, [`ConvertingSink`](crate::ConvertingSink) and
//! [`ConvertingSource`](crate::ConvertingSource) the blocks of a stream.

pub(crate) mod adapter;
mod kernels;
mod layout;

use dmabuf_dio::Errno;
use dmabuf_dio::lend::Mapping;

use self::kernels::{Bits, double, narrow, single, wide};
use crate::error::{Result, failed};
use crate::format::{Encoding, Format};

pub use layout::{Layout, SampleType};

/// Values converted at a time: intermediate values stay in the first-level cache.
const VALUES: usize = 1024;
/// Bytes copied from and to a block at a time.
const PIECE: u64 = 16 << 10;

/// How values are represented between two formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// An integer of at most 32 bits in memory.
    Narrow,
    Wide,
    Single,
    Double,
}

/// One format of values.
#[derive(Clone, Copy, Debug)]
struct Kind {
    class: Class,
    /// In bytes.
    size: u64,
    bits: Bits,
}

impl Kind {
    fn of(format: Format) -> Self {
        let class = match (format.kind, format.storage_bits) {
            (Encoding::Float, 32) => Class::Single,
            (Encoding::Float, _) => Class::Double,
            (_, ..=32) => Class::Narrow,
            _ => Class::Wide,
        };
        let signed = format.kind == Encoding::Signed;
        let Format { big_endian, bits, shift, .. } = format;
        Self { class, size: format.bytes(), bits: Bits { big_endian, signed, count: bits, shift } }
    }
}

/// Converts frames of samples from one layout to another.
///
/// `Send` and `Sync`. It allocates about 50 KiB of memory when it is created, and none later.
#[derive(Debug)]
pub struct Converter {
    from: Layout,
    to: Layout,
    /// The formats of all values, if each side has one.
    flat: Option<(Kind, Kind)>,
    values: Values,
    /// Values at one place in the frame, before and after the conversion.
    before: Vec<u8>,
    after: Vec<u8>,
    /// Frames copied from and to blocks.
    piece: (Vec<u8>, Vec<u8>),
}

/// Values on their way.
#[derive(Debug)]
struct Values {
    narrow: Vec<i32>,
    wide: Vec<i64>,
    single: Vec<f32>,
    double: Vec<f64>,
}

impl Converter {
    /// A conversion between frames with the same number of values.
    ///
    /// # Errors
    ///
    /// [`Error::Stream`](crate::Error::Stream): `EINVAL` if the numbers differ or are 0,
    /// `EOPNOTSUPP` for a format that [does not convert](Format::converts).
    pub fn new(from: Layout, to: Layout) -> Result<Self> {
        let refused = |what: String, errno| failed("the conversion", what, errno);
        if from.count() != to.count() || from.count() == 0 {
            let what = format!("make {} values per frame of {}", to.count(), from.count());
            return Err(refused(what, Errno::INVAL));
        }
        for (_, format) in from.values.iter().chain(&to.values) {
            if !format.converts() {
                return Err(refused(format!("convert {format}"), Errno::OPNOTSUPP));
            }
        }
        let flat = from.one_format().zip(to.one_format());
        let flat = flat.map(|(from, to)| (Kind::of(from), Kind::of(to)));
        let values = Values {
            narrow: vec![0; VALUES],
            wide: vec![0; VALUES],
            single: vec![0.0; VALUES],
            double: vec![0.0; VALUES],
        };
        let frames = (PIECE / from.frame().max(to.frame())).max(1) as usize;
        let piece =
            (vec![0; frames * from.frame() as usize], vec![0; frames * to.frame() as usize]);
        let (before, after) = (vec![0; 8 * VALUES], vec![0; 8 * VALUES]);
        Ok(Self { from, to, flat, values, before, after, piece })
    }

    /// Whether both layouts are the same, so that there is nothing to convert.
    pub fn is_identity(&self) -> bool {
        self.from == self.to
    }

    /// The layout before the conversion.
    pub fn from(&self) -> &Layout {
        &self.from
    }

    /// The layout after the conversion.
    pub fn to(&self) -> &Layout {
        &self.to
    }

    /// Converts as many whole frames as fit in both, from the start of `from` to the start of `to`,
    /// and returns their number. Bytes between the values of a frame become 0.
    pub fn convert(&mut self, from: &[u8], to: &mut [u8]) -> usize {
        let (in_frame, out_frame) = (self.from.frame() as usize, self.to.frame() as usize);
        let frames = (from.len() / in_frame).min(to.len() / out_frame);
        let (from, to) = (&from[..frames * in_frame], &mut to[..frames * out_frame]);
        if let Some((one, other)) = self.flat {
            let (size, out_size) = (one.size as usize * VALUES, other.size as usize * VALUES);
            for (from, to) in from.chunks(size).zip(to.chunks_mut(out_size)) {
                self.values.convert(one, from, other, to);
            }
            return frames;
        }
        to.fill(0);
        for (from, to) in from.chunks(in_frame * VALUES).zip(to.chunks_mut(out_frame * VALUES)) {
            let count = from.len() / in_frame;
            for (&(at, format), &(out_at, out_format)) in
                self.from.values.iter().zip(&self.to.values)
            {
                let (one, other) = (Kind::of(format), Kind::of(out_format));
                let before = &mut self.before[..count * one.size as usize];
                let after = &mut self.after[..count * other.size as usize];
                kernels::gather(&from[at..], in_frame, one.size, before);
                self.values.convert(one, before, other, after);
                kernels::scatter(after, other.size, &mut to[out_at..], out_frame);
            }
        }
        frames
    }

    /// Converts `frames` frames from the start of one mapping to the start of another. Both are in
    /// CPU access.
    pub(crate) fn convert_mapped(
        &mut self,
        from: &Mapping,
        to: &Mapping,
        frames: u64,
    ) -> Result<()> {
        let (in_frame, out_frame) = (self.from.frame(), self.to.frame());
        let (mut input, mut output) = std::mem::take(&mut self.piece);
        let step = input.len() as u64 / in_frame;
        let mut result = Ok(());
        let mut done = 0;
        while done < frames && result.is_ok() {
            let count = step.min(frames - done);
            let input = &mut input[..(count * in_frame) as usize];
            let output = &mut output[..(count * out_frame) as usize];
            result = from.copy_to(done * in_frame, input).and_then(|()| {
                self.convert(input, output);
                to.copy_from(done * out_frame, output)
            });
            done += count;
        }
        self.piece = (input, output);
        Ok(result?)
    }
}

impl Values {
    /// Converts consecutive values, at most [`VALUES`].
    fn convert(&mut self, from: Kind, input: &[u8], to: Kind, output: &mut [u8]) {
        let count = input.len() / from.size as usize;
        let (bits, out_bits) = (from.bits.count, to.bits.count);
        let narrow = &mut self.narrow[..count];
        let wide = &mut self.wide[..count];
        let single = &mut self.single[..count];
        let double = &mut self.double[..count];
        match from.class {
            Class::Narrow => narrow::unpack(input, from.size, from.bits, narrow),
            Class::Wide => wide::unpack(input, from.size, from.bits, wide),
            Class::Single => single::unpack(input, from.bits.big_endian, single),
            Class::Double => double::unpack(input, from.bits.big_endian, double),
        }
        match (from.class, to.class) {
            (Class::Narrow, Class::Narrow) => narrow::rescale(narrow, bits, out_bits),
            (Class::Narrow, Class::Wide) => {
                narrow.iter().zip(&mut *wide).for_each(|(value, to)| *to = i64::from(*value));
                wide::rescale(wide, bits, out_bits);
            }
            (Class::Narrow, Class::Single) => kernels::to_single(narrow, bits, single),
            (Class::Narrow, Class::Double) => kernels::to_double(narrow, bits, double),
            (Class::Wide, Class::Narrow) => {
                wide::rescale(wide, bits, out_bits);
                wide.iter().zip(&mut *narrow).for_each(|(value, to)| *to = *value as i32);
            }
            (Class::Wide, Class::Wide) => wide::rescale(wide, bits, out_bits),
            (Class::Wide, Class::Single) => kernels::wide_to_single(wide, bits, single),
            (Class::Wide, Class::Double) => kernels::wide_to_double(wide, bits, double),
            (Class::Single, Class::Narrow) if out_bits <= kernels::SINGLE => {
                kernels::of_single(single, out_bits, narrow);
            }
            (Class::Single, Class::Narrow) => {
                kernels::widen(single, double);
                kernels::of_double(double, out_bits, narrow);
            }
            (Class::Single, Class::Wide) => {
                kernels::widen(single, double);
                kernels::wide_of_double(double, out_bits, wide);
            }
            (Class::Single, Class::Double) => kernels::widen(single, double),
            (Class::Double, Class::Narrow) => kernels::of_double(double, out_bits, narrow),
            (Class::Double, Class::Wide) => kernels::wide_of_double(double, out_bits, wide),
            (Class::Double, Class::Single) => {
                double.iter().zip(&mut *single).for_each(|(value, to)| *to = *value as f32);
            }
            (Class::Single, Class::Single) | (Class::Double, Class::Double) => {}
        }
        match to.class {
            Class::Narrow => narrow::pack(narrow, to.size, to.bits, output),
            Class::Wide => wide::pack(wide, to.size, to.bits, output),
            Class::Single => single::pack(single, to.bits.big_endian, output),
            Class::Double => double::pack(double, to.bits.big_endian, output),
        }
    }
}

#[cfg(test)]
mod tests;
