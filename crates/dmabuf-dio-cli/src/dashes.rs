// SPDX-License-Identifier: MIT OR Apache-2.0
//! Suggests the correct line for `dmabuf-dio load FILE COMMAND` without `--`.

use std::ffi::OsString;

use clap::Parser as _;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use dmabuf_dio_terminal::exit::{USAGE, say};

use crate::args::{Cli, Command};

/// Parses the command line, or ends the program.
pub(crate) fn parse(words: &[OsString]) -> Cli {
    Cli::try_parse_from(words).unwrap_or_else(|error| {
        let Some(with) = with_dashes(words, &error) else { error.exit() };
        let program = "dmabuf-dio: ";
        say(&format!("{program}a command to run begins behind --"));
        say(&format!("{:1$}write: {with}", "", program.len()));
        std::process::exit(USAGE.into());
    })
}

/// The command line with the missing `--`, if that is its only fault.
pub(crate) fn with_dashes(words: &[OsString], error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(command)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    if error.kind() != ErrorKind::UnknownArgument || command.starts_with('-') {
        return None;
    }
    let words = (2..words.len()).find_map(|place| {
        let (before, after) = words.split_at(place);
        let words = [before, &["--".into()], after].concat();
        match Cli::try_parse_from(&words).ok()?.command {
            Command::Load(load) if load.command.first()? == command.as_str() => Some(words),
            _ => None,
        }
    })?;
    let words: Vec<_> = words.iter().skip(1).map(|word| quoted(&word.to_string_lossy())).collect();
    Some(format!("dmabuf-dio {}", words.join(" ")))
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_./=:,@%+-{}".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.into()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(line: &str) -> Option<String> {
        let words: Vec<OsString> = line.split(' ').map(Into::into).collect();
        let error = Cli::try_parse_from(&words).expect_err("wrong usage");
        with_dashes(&words, &error)
    }

    #[test]
    fn missing_dashes_are_suggested() {
        for (line, with) in [
            ("dmabuf-dio load f cat", "dmabuf-dio load f -- cat"),
            ("x load f llama-cli -m {} -p a$b", "dmabuf-dio load f -- llama-cli -m {} -p 'a$b'"),
            ("x load cat cat --verbose", "dmabuf-dio load cat -- cat --verbose"),
            ("x load f --length 5 cat f", "dmabuf-dio load f --length 5 -- cat f"),
            ("x load --json f ./run", "dmabuf-dio load --json f -- ./run"),
        ] {
            assert_eq!(said(line).as_deref(), Some(with), "{line}");
        }
        for line in
            ["x load f -m a", "x load", "x save f cat", "x load f --length x cat", "x doctor f g"]
        {
            assert_eq!(said(line), None, "{line}");
        }
    }
}
