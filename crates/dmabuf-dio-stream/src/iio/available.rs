// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values of attributes.

use std::fmt;

/// The values that an attribute accepts, as far as the driver lists them.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "lowercase"))]
pub enum Available {
    /// One of these: words, or numbers.
    List(Vec<String>),
    /// A number.
    Range {
        /// The smallest value.
        min: f64,
        /// The step from one value to the next. Drivers round values in between.
        step: f64,
        /// The largest value.
        max: f64,
    },
}

impl Available {
    /// Parses the content of an `_available` file: `30720000 3840000`, `[70000000 1 6000000000]`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if let Some(range) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
            let numbers: Option<Vec<f64>> =
                range.split_whitespace().map(|number| number.parse().ok()).collect();
            let [min, step, max] = numbers?[..] else { return None };
            return Some(Self::Range { min, step, max });
        }
        let list: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
        (!list.is_empty()).then_some(Self::List(list))
    }

    /// Whether a value is one of these, or in the range. Numbers are compared as numbers.
    pub fn allows(&self, value: &str) -> bool {
        match self {
            Self::List(list) => list.iter().any(|one| is_same(one, value)),
            Self::Range { min, max, .. } => {
                let number = value.trim().parse::<f64>();
                number.is_ok_and(|number| (*min..=*max).contains(&number))
            }
        }
    }
}

impl fmt::Display for Available {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::List(list) => f.write_str(&list.join(" ")),
            Self::Range { min, step, max } => write!(f, "{min} to {max} in steps of {step}"),
        }
    }
}

/// Whether two values are the same: equal numbers, of one unit, or equal words. A device may report
/// `71.000000 dB` where `71` was written.
pub(crate) fn is_same(one: &str, other: &str) -> bool {
    match (number(one), number(other)) {
        (Some(one), Some(other)) => (one - other).abs() <= 1e-9 * one.abs().max(other.abs()),
        _ => one.trim() == other.trim(),
    }
}

/// A number, with or without a unit.
fn number(text: &str) -> Option<f64> {
    text.trim().split(' ').next()?.parse().ok().filter(|number: &f64| number.is_finite())
}

/// An attribute that could not be put back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// Name of the device or trigger.
    pub device: String,
    /// Name of the attribute.
    pub attribute: String,
    /// The value that it should have.
    pub before: String,
    /// The value that it has.
    pub value: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_compared_as_numbers() {
        for (one, other) in
            [("71", "71.000000 dB"), ("2.5", "2.500000"), ("a\n", "a"), ("-0.5", "-0.500000 dB")]
        {
            assert!(is_same(one, other), "{one} {other}");
        }
        for (one, other) in [("71", "71.5 dB"), ("a", "b"), ("1", ""), ("1", "1x"), ("nan", "inf")]
        {
            assert!(!is_same(one, other), "{one} {other}");
        }
    }
}
