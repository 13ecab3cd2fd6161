// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments.

use std::path::PathBuf;

pub(crate) const USAGE: &str = "usage: dmabuf-dio-torture fuzz [OPTION...] [--replay FILE...]
  --seed N        of what is drawn (default: 1)
  --minutes N     how long (default: 10)
  --executions N  how many inputs, in place of a time
  --json          say the end as a line of JSON
  --no-shrink     print the input that failed as it is
  --verbose       print each input before it runs
  --corpus FOLDER write the inputs that reached something new to a folder that exists
  --replay FILE   run kept inputs";

pub(crate) struct Args {
    pub(crate) seed: u64,
    pub(crate) minutes: u64,
    pub(crate) executions: Option<u64>,
    pub(crate) json: bool,
    pub(crate) shrink: bool,
    pub(crate) verbose: bool,
    pub(crate) corpus: Option<PathBuf>,
    pub(crate) replay: Vec<PathBuf>,
}

impl Args {
    pub(crate) fn parse(words: &[String]) -> Result<Self, String> {
        let mut args = Self {
            seed: 1,
            minutes: 10,
            executions: None,
            json: false,
            shrink: true,
            verbose: false,
            corpus: None,
            replay: Vec::new(),
        };
        let mut words = words.iter();
        while let Some(option) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("'{option}' needs a value"));
            let number =
                |text: &String| text.parse().map_err(|_| format!("'{text}' is not a number"));
            match option.as_str() {
                "--seed" => args.seed = number(value()?)?,
                "--minutes" => args.minutes = number(value()?)?,
                "--executions" => args.executions = Some(number(value()?)?),
                "--json" => args.json = true,
                "--no-shrink" => args.shrink = false,
                "--verbose" => args.verbose = true,
                "--corpus" => args.corpus = Some(value()?.into()),
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
        Args::parse(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_read() {
        let args = parse("--seed 7 --executions 3 --no-shrink --replay a b").unwrap();
        let read = (args.seed, args.executions, args.shrink, args.replay.len());
        assert_eq!(read, (7, Some(3), false, 2));
        assert!(parse("--seed").is_err_and(|why| why == "'--seed' needs a value"));
        assert!(parse("--sed").is_err_and(|why| why == "there is no option '--sed'"));
    }
}
