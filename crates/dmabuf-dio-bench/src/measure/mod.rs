// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two meters: time, and all that the CPU did.

pub(crate) mod clock;
pub(crate) mod meter;
pub(crate) mod phase;

/// The middle one, or the mean of the two in the middle.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let (low, high) = ((values.len().max(1) - 1) / 2, values.len() / 2);
    values.get(low).zip(values.get(high)).map_or(f64::NAN, |(low, high)| f64::midpoint(*low, *high))
}
