// SPDX-License-Identifier: MIT OR Apache-2.0
//! The values of options, as they are written.

use std::fmt;

use clap::ValueEnum;
use dmabuf_dio_stream::Overrun;
use dmabuf_dio_terminal::size::{parse_count, parse_rate, parse_size};

/// The value of `--overrun`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Policy {
    /// Wait for TO; the device loses samples meanwhile
    Block,
    /// Stop at the first loss
    Fail,
}

impl From<Policy> for Overrun {
    fn from(policy: Policy) -> Self {
        match policy {
            Policy::Block => Self::Block,
            Policy::Fail => Self::Fail,
        }
    }
}

/// The value of `--max-loss`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum MaxLoss {
    Frames(u64),
    /// A part of all frames, from 0 to 1.
    Part(f64),
}

impl MaxLoss {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is not a limit for losses: write 0, 1000, 1M or 0.1%");
        if let Some(percent) = text.strip_suffix('%') {
            let percent: f64 = percent.trim_end().parse().map_err(|_| bad())?;
            return if (0.0..=100.0).contains(&percent) {
                Ok(Self::Part(percent / 100.0))
            } else {
                Err(bad())
            };
        }
        if text == "0" {
            return Ok(Self::Frames(0));
        }
        parse_count(text).map(Self::Frames).map_err(|_| bad())
    }
}

impl fmt::Display for MaxLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frames(frames) => write!(f, "{frames}"),
            Self::Part(part) => write!(f, "{}%", part * 100.0),
        }
    }
}

/// The value of `--rotate`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rotate {
    Seconds(f64),
    Bytes(u64),
}

impl Rotate {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let units = [("min", 60.0), ("s", 1.0), ("h", 3600.0)];
        let time = units.iter().find_map(|(unit, seconds)| {
            Some(text.strip_suffix(unit)?.trim_end().parse::<f64>().ok()? * seconds)
        });
        let bad =
            || format!("{text:?} is neither a time nor a size: write 60s, 10min, 1h, 500M or 4G");
        match time {
            Some(seconds) if seconds > 0.0 && seconds <= 1e9 => Ok(Self::Seconds(seconds)),
            Some(_) => Err(bad()),
            None => match parse_size(text) {
                Ok(bytes @ 1..) => Ok(Self::Bytes(bytes)),
                _ => Err(bad()),
            },
        }
    }
}

/// A value of `--set`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Assignment {
    /// Name of another device, or of a trigger.
    pub(crate) owner: Option<String>,
    pub(crate) attribute: String,
    pub(crate) value: String,
}

impl Assignment {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is not a setting: write voltage0.hardwaregain=30");
        let (name, value) = text.split_once('=').ok_or_else(bad)?;
        let (owner, attribute) = match name.rsplit_once('/') {
            Some((owner, attribute)) => (Some(owner.to_owned()), attribute),
            None => (None, name),
        };
        if attribute.is_empty() || value.is_empty() || owner.as_ref().is_some_and(String::is_empty)
        {
            return Err(bad());
        }
        Ok(Self { owner, attribute: attribute.to_owned(), value: value.to_owned() })
    }
}

pub(crate) fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("{text:?} is not a number of seconds"))?;
    if seconds > 0.0 && seconds <= 1e9 {
        Ok(seconds)
    } else {
        Err(format!("{text:?} is not a duration: write more than 0"))
    }
}

pub(crate) fn parse_frame_size(text: &str) -> Result<(u32, u32), String> {
    let number = |text: &str| text.parse::<u32>().ok().filter(|number| *number > 0);
    let size = text.split_once(['x', 'X']);
    size.and_then(|(width, height)| Some((number(width)?, number(height)?)))
        .ok_or_else(|| format!("{text:?} is not a frame size: write 1920x1080"))
}

pub(crate) fn parse_fps(text: &str) -> Result<f64, String> {
    let rate = parse_rate(text).ok().filter(|rate| (0.01..=1e6).contains(rate));
    rate.ok_or_else(|| format!("{text:?} is not a number of frames per second: write 30 or 29.97"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_limits_are_parsed() {
        assert_eq!(MaxLoss::parse("0"), Ok(MaxLoss::Frames(0)));
        assert_eq!(MaxLoss::parse("2k"), Ok(MaxLoss::Frames(2000)));
        assert_eq!(MaxLoss::parse("50%"), Ok(MaxLoss::Part(0.5)));
        for bad in ["", "%", "-1", "101%", "nan%", "x", "1.5"] {
            assert!(MaxLoss::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn seconds_are_parsed() {
        assert_eq!(parse_seconds("0.5"), Ok(0.5));
        for bad in ["", "0", "-1", "inf", "nan", "x"] {
            assert!(parse_seconds(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn rotation_times_and_sizes_are_parsed() {
        assert_eq!(Rotate::parse("60s"), Ok(Rotate::Seconds(60.0)));
        assert_eq!(Rotate::parse("1.5min"), Ok(Rotate::Seconds(90.0)));
        assert_eq!(Rotate::parse("2h"), Ok(Rotate::Seconds(7200.0)));
        assert_eq!(Rotate::parse("4G"), Ok(Rotate::Bytes(4 << 30)));
        assert_eq!(Rotate::parse("500MB"), Ok(Rotate::Bytes(500_000_000)));
        for bad in ["", "0", "0s", "-1s", "nans", "s", "5x", "infh"] {
            assert!(Rotate::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn settings_are_parsed() {
        let wanted = |owner: Option<&str>, attribute: &str, value: &str| Assignment {
            owner: owner.map(str::to_owned),
            attribute: attribute.into(),
            value: value.into(),
        };
        for (text, result) in [
            ("ensm_mode=fdd", wanted(None, "ensm_mode", "fdd")),
            ("voltage0.hardwaregain=-3.5", wanted(None, "voltage0.hardwaregain", "-3.5")),
            ("x=a=b", wanted(None, "x", "a=b")),
            (
                "iio:device1/RX_LO.frequency=2.4G",
                wanted(Some("iio:device1"), "RX_LO.frequency", "2.4G"),
            ),
        ] {
            assert_eq!(Assignment::parse(text), Ok(result), "{text}");
        }
        for bad in ["", "x", "x=", "=1", "/x=1", "phy/=1"] {
            assert!(Assignment::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn frame_sizes_and_rates_are_parsed() {
        assert_eq!(parse_frame_size("1920x1080"), Ok((1920, 1080)));
        assert_eq!(parse_frame_size("640X480"), Ok((640, 480)));
        for bad in ["", "x", "640", "640x", "0x480", "640x480x3", "-1x2", "4294967296x1"] {
            assert!(parse_frame_size(bad).is_err(), "{bad}");
        }
        assert_eq!((parse_fps("30"), parse_fps("29.97")), (Ok(30.0), Ok(29.97)));
        for bad in ["", "0", "-1", "x", "inf"] {
            assert!(parse_fps(bad).is_err(), "{bad}");
        }
    }
}
