// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments.

use std::path::PathBuf;

use crate::plan::Only;

pub(crate) const USAGE: &str = "usage: dmabuf-dio-torture [OPTION...] [--replay FILE...]
  --seed N        of the rounds (default: 1)
  --minutes N     how long (default: 10)
  --rounds N      how many rounds, in place of a time
  --first N       the first round (default: 0)
  --json          say the end of a campaign as a line of JSON
  --no-shrink     print the sequence that failed as it is
  --verbose       print the number of each round before it
  --faults        faults of the machine and of files only, which else end some rounds
  --library       calls of the library, its keeper and its streams only, which else end some rounds
  --print N       print the operations of a round, and run nothing
  --folder PATH   where files are made (default: the current folder)
  --replay FILE   run kept sequences
'powercut', 'fuzz' and 'soak' as the first word have options of their own";

#[derive(Debug)]
#[allow(clippy::struct_excessive_bools)] // independent of each other
pub(crate) struct Args {
    pub(crate) seed: u64,
    pub(crate) minutes: u64,
    pub(crate) rounds: Option<u64>,
    pub(crate) first: u64,
    pub(crate) json: bool,
    pub(crate) shrink: bool,
    pub(crate) verbose: bool,
    pub(crate) only: Only,
    pub(crate) print: Option<u64>,
    pub(crate) folder: PathBuf,
    pub(crate) replay: Vec<PathBuf>,
}

impl Args {
    pub(crate) fn parse(words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut args = Self {
            seed: 1,
            minutes: 10,
            rounds: None,
            first: 0,
            json: false,
            shrink: true,
            verbose: false,
            only: Only::All,
            print: None,
            folder: ".".into(),
            replay: Vec::new(),
        };
        let mut words = words.peekable();
        while let Some(option) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("'{option}' needs a value"));
            let number =
                |text: String| text.parse::<u64>().map_err(|_| format!("'{text}' is not a number"));
            match option.as_str() {
                "--seed" => args.seed = number(value()?)?,
                "--minutes" => args.minutes = number(value()?)?,
                "--rounds" => args.rounds = Some(number(value()?)?),
                "--first" => args.first = number(value()?)?,
                "--json" => args.json = true,
                "--no-shrink" => args.shrink = false,
                "--verbose" => args.verbose = true,
                "--faults" => args.only = Only::Faults,
                "--library" => args.only = Only::Library,
                "--print" => args.print = Some(number(value()?)?),
                "--folder" => args.folder = value()?.into(),
                "--replay" => args.replay = words.by_ref().map(PathBuf::from).collect(),
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
        Args::parse(text.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn options_are_read() {
        let args = parse("--seed 7 --rounds 3 --no-shrink --replay a b").unwrap();
        assert_eq!(
            (args.seed, args.rounds, args.shrink, args.replay.len()),
            (7, Some(3), false, 2)
        );
    }

    #[test]
    fn mistakes_are_named() {
        assert_eq!(parse("--seed").unwrap_err(), "'--seed' needs a value");
        assert_eq!(parse("--seed x").unwrap_err(), "'x' is not a number");
        assert_eq!(parse("--sed 1").unwrap_err(), "there is no option '--sed'");
    }
}
