// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers of bytes, read and written.

/// Reads `4096`, `4K`, `4KiB` (all the same), `4KB` (4000), and so on up to T.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number
        .parse()
        .map_err(|_| format!("{text:?} is no number of bytes: write 4096, 4K or 16MiB"))?;
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
        _ => return Err(format!("{unit:?} is no unit: write K, M, G or T")),
    };
    u64::pow(base, power)
        .checked_mul(number)
        .ok_or_else(|| format!("{text:?} is more than 64 bits hold"))
}

/// Writes a number of bytes with three digits or so.
pub(crate) fn show_size(bytes: u64) -> String {
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
    fn sizes_are_read() {
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
    fn sizes_are_written() {
        assert_eq!(show_size(1), "1 bytes");
        assert_eq!(show_size(4096), "4 KiB");
        assert_eq!(show_size(90_868_376), "86.7 MiB");
    }
}
