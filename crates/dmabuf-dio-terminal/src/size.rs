// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parses and formats numbers of bytes.

/// Parses `4096`, `4K`, `4KiB` (all the same), `4KB` (4000), and so on up to T.
///
/// # Errors
///
/// A message that says what is wrong with the text.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number
        .parse()
        .map_err(|_| format!("{text:?} is not a number of bytes: write 4096, 4K or 16MiB"))?;
    let unit = unit.trim_start().to_ascii_lowercase();
    let (prefix, base) = match unit.strip_suffix('b') {
        None => (unit.as_str(), 1024),
        Some(prefix) => prefix.strip_suffix('i').map_or((prefix, 1000), |prefix| (prefix, 1024)),
    };
    let power = match prefix {
        "" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        _ => return Err(format!("{unit:?} is not a unit: write K, M, G or T")),
    };
    u64::pow(base, power)
        .checked_mul(number)
        .ok_or_else(|| format!("{text:?} does not fit in 64 bits"))
}

/// Parses a rate in hertz: `48000`, `48k`, `30.72M`, `1G`.
///
/// # Errors
///
/// A message that says what is wrong with the text.
pub fn parse_rate(text: &str) -> Result<f64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = text[digits.len()..].to_ascii_lowercase();
    let prefix = unit.strip_suffix("hz").unwrap_or(&unit);
    let factor = match prefix {
        "" => 1.0,
        "k" => 1e3,
        "m" => 1e6,
        "g" => 1e9,
        _ => return Err(format!("{unit:?} is not a unit: write k, M or G")),
    };
    let number: f64 = digits
        .trim_end()
        .parse()
        .map_err(|_| format!("{text:?} is not a rate: write 48000, 48k or 30.72M"))?;
    // Rounding to a millionth of a hertz removes the error of the binary fraction.
    let rate = (number * factor * 1e6).round() / 1e6;
    if (0.0..=1e15).contains(&rate) {
        Ok(rate)
    } else {
        Err(format!("{text:?} is not a rate: write 48000, 48k or 30.72M"))
    }
}

/// Parses a whole number: `1000000`, `1M`.
///
/// # Errors
///
/// A message that says what is wrong with the text.
pub fn parse_count(text: &str) -> Result<u64, String> {
    if let Ok(count @ 1..) = text.parse() {
        return Ok(count);
    }
    match parse_rate(text) {
        Ok(count) if count.fract() == 0.0 && count >= 1.0 => Ok(count as u64),
        _ => Err(format!("{text:?} is not a number of frames: write 1000000, 1000k or 1M")),
    }
}

/// Formats a number of bytes with about three digits.
pub fn show_size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = if unit == 0 || value.fract() == 0.0 { 0 } else { 1 };
    format!("{value:.digits$} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("4K", 4096),
            ("4k", 4096),
            ("4KiB", 4096),
            ("4kB", 4000),
            ("16MiB", 16 << 20),
            ("1 G", 1 << 30),
            ("2T", 2 << 40),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "K", "-1", "4Q", "1.5G", "99999999999999999999", "17000000T"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rates_are_parsed() {
        for (text, rate) in
            [("0", 0.0), ("48000", 48e3), ("48k", 48e3), ("30.72M", 30_720_000.0), ("1 GHz", 1e9)]
        {
            assert_eq!(parse_rate(text), Ok(rate), "{text}");
        }
        for text in ["", "k", "-1", "1T", "inf", "nan", "1e30"] {
            assert!(parse_rate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn counts_are_parsed() {
        assert_eq!((parse_count("10M"), parse_count("12")), (Ok(10_000_000), Ok(12)));
        assert_eq!(parse_count("608037303521"), Ok(608_037_303_521));
        for text in ["", "0", "0.5", "1.0005k", "x"] {
            assert!(parse_count(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_printed() {
        assert_eq!(show_size(1), "1 bytes");
        assert_eq!(show_size(4096), "4 KiB");
        assert_eq!(show_size(90_868_376), "86.7 MiB");
    }
}
