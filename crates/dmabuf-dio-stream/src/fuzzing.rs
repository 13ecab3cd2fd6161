// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the targets of the fuzzer call: tests/fuzz/library. Each panics if a promise is broken.

use crate::convert::{Converter, Layout, SampleType};
use crate::format::{Encoding, Format};
use crate::iio::Available;
use crate::v4l2::PixelFormat;

/// Any text as what a driver or a user writes: formats of samples and pixels, lists of values.
pub fn formats(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Some(format) = Format::parse(text) {
        assert!(format.bytes() > 0 && format.bits + format.shift <= format.storage_bits);
        assert_eq!(Format::parse(&format.to_string()), Some(format));
    }
    if let Ok(format) = text.parse::<Format>() {
        assert!(format.converts());
        assert_eq!(format.to_string().parse(), Ok(format));
    }
    if let Ok(sample) = text.parse::<SampleType>() {
        assert_eq!(sample.to_string().parse(), Ok(sample));
    }
    if let Ok(pixels) = text.parse::<PixelFormat>() {
        assert_eq!(pixels.to_string().parse(), Ok(pixels));
    }
    match Available::parse(text) {
        Some(Available::Range { min, step, max }) => {
            assert!([min, step, max].into_iter().all(f64::is_finite), "{min} {step} {max}");
        }
        Some(Available::List(values)) => assert!(!values.is_empty()),
        None => {}
    }
}

/// Frames, behind a line with their formats: `le:s12/16~4,be:u8/8>le:f64/64,le:s32/32`, where `~` is `>>`.
pub fn conversions(bytes: &[u8]) {
    /// More values than a frame of a device has.
    const MOST: usize = 4096;
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let (line, samples) = (&bytes[..end], bytes.get(end + 1..).unwrap_or_default());
    let Some((from, to)) = std::str::from_utf8(line).ok().and_then(|line| line.split_once('>'))
    else {
        return;
    };
    let formats = |text: &str| -> Option<Vec<Format>> {
        text.split(',').map(|one| Format::parse(&one.replace('~', ">>"))).collect()
    };
    let (Some(from), Some(to)) = (formats(from), formats(to)) else { return };
    let (from, to) = (Layout::of(&from), Layout::of(&to));
    if from.count() > MOST || to.count() > MOST {
        return;
    }
    let Ok(mut converter) = Converter::new(from.clone(), to.clone()) else { return };
    let converted = |converter: &mut Converter, input: &[u8]| {
        let (frames, size) =
            (input.len() as u64 / converter.from().frame(), converter.to().frame());
        let mut output = vec![0xee; (frames * size) as usize];
        assert_eq!(converter.convert(input, &mut output) as u64, frames);
        output
    };
    let all = converted(&mut converter, samples);
    // Frame by frame it is the same.
    let frame = from.frame() as usize;
    let one_by_one: Vec<u8> = samples
        .chunks_exact(frame)
        .take(64)
        .flat_map(|one| converted(&mut converter, one))
        .collect();
    assert!(all.starts_with(&one_by_one), "frames depend on others");
    // Doubles hold 53 bits: what was an integer is one again.
    let is_exact = |format: &Format| format.kind != Encoding::Float && format.bits <= 53;
    if from.one_format().is_some_and(|format| is_exact(&format)) {
        let double = "le:f64/64>>0".parse().expect("a format");
        let doubles = Layout::uniform(double, from.count());
        let mut there = Converter::new(from.clone(), doubles.clone()).expect("a conversion");
        let mut back = Converter::new(doubles, from.clone()).expect("a conversion");
        let mut same = Converter::new(from.clone(), from).expect("a conversion");
        let doubles = converted(&mut there, samples);
        assert_eq!(converted(&mut back, &doubles), converted(&mut same, samples));
    }
}

/// Losses of devices that report them in every way.
#[cfg(fuzzed)]
pub fn losses(bytes: &[u8]) {
    use crate::properties::*;
    crate::drawn::with(bytes, || {
        every_lost_frame_is_in_one_gap_around_its_place();
        losses_are_passed_once_and_not_after_their_place();
        losses_without_a_count_have_a_gap_around_their_place();
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kept_inputs::try_all;

    #[test]
    fn kept_formats_keep_their_promises() {
        try_all("formats", formats);
    }

    #[test]
    fn kept_conversions_keep_their_promises() {
        try_all("conversions", conversions);
    }
}
