// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments.

pub(crate) const USAGE: &str = "usage: dmabuf-dio-torture soak [OPTION...]
  --gib N         moved between a device and a dma-buf, half of it each way (default: 100)
  --gathers N     small reads, in calls of 1,024 (default: 1,000,000)
  --loads N       files of 64 KiB into new dma-bufs (default: 10,000)
  --minutes N     after which each of these three ends, if it has not (default: 20)";

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Args {
    pub(crate) gib: u64,
    pub(crate) gathers: u64,
    pub(crate) loads: u64,
    pub(crate) minutes: u64,
}

impl Args {
    pub(crate) fn parse(words: &[String]) -> Result<Self, String> {
        let mut args = Self { gib: 100, gathers: 1_000_000, loads: 10_000, minutes: 20 };
        let mut words = words.iter();
        while let Some(option) = words.next() {
            let value = words.next().ok_or_else(|| format!("'{option}' needs a value"))?;
            let number = value.parse().map_err(|_| format!("'{value}' is not a number"))?;
            match option.as_str() {
                "--gib" => args.gib = number,
                "--gathers" => args.gathers = number,
                "--loads" => args.loads = number,
                "--minutes" => args.minutes = number,
                _ => return Err(format!("there is no option '{option}'")),
            }
        }
        Ok(args)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Args, String> {
        Args::parse(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_read() {
        let args = parse("--gib 7 --loads 3").unwrap();
        assert_eq!(args, Args { gib: 7, gathers: 1_000_000, loads: 3, minutes: 20 });
    }

    #[test]
    fn mistakes_are_named() {
        assert_eq!(parse("--gib").unwrap_err(), "'--gib' needs a value");
        assert_eq!(parse("--gib x").unwrap_err(), "'x' is not a number");
        assert_eq!(parse("--gb 1").unwrap_err(), "there is no option '--gb'");
    }
}
