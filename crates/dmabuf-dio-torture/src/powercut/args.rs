// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments.

use crate::powercut::volume::Kind;

pub(crate) const USAGE: &str = "usage: dmabuf-dio-torture powercut [OPTION...]
  --fs FS         ext4, xfs, f2fs or btrfs (default: ext4)
  --seed N        of the operations, and of what is lost (default: 1)
  --minutes N     how long (default: 10)
  --points N      how often the power is cut, in place of a time
  --first N       the first round (default: 0)
  --place N       of the disks, if several campaigns run at the same time (default: 0)
  --verbose       print the number of each round";

pub(crate) struct Args {
    pub(crate) kind: &'static Kind,
    pub(crate) seed: u64,
    pub(crate) minutes: u64,
    pub(crate) points: Option<u64>,
    pub(crate) first: u64,
    pub(crate) place: usize,
    pub(crate) verbose: bool,
}

impl Args {
    pub(crate) fn parse(words: &[String]) -> Result<Self, String> {
        let kind = Kind::of("ext4").ok_or("there are no file systems")?;
        let mut args =
            Self { kind, seed: 1, minutes: 10, points: None, first: 0, place: 0, verbose: false };
        let mut words = words.iter();
        while let Some(option) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("'{option}' needs a value"));
            let number =
                |text: &String| text.parse().map_err(|_| format!("'{text}' is not a number"));
            match option.as_str() {
                "--fs" => {
                    let name = value()?;
                    args.kind = Kind::of(name)
                        .ok_or_else(|| format!("'{name}' is none of the file systems"))?;
                }
                "--seed" => args.seed = number(value()?)?,
                "--minutes" => args.minutes = number(value()?)?,
                "--points" => args.points = Some(number(value()?)?),
                "--first" => args.first = number(value()?)?,
                "--place" => args.place = number(value()?)? as usize,
                "--verbose" => args.verbose = true,
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
        let args = parse("--fs btrfs --points 7").unwrap();
        assert_eq!((args.kind.name, args.points, args.seed), ("btrfs", Some(7), 1));
        assert!(parse("--fs fat").is_err_and(|why| why == "'fat' is none of the file systems"));
        assert!(parse("--seed").is_err_and(|why| why == "'--seed' needs a value"));
    }
}
