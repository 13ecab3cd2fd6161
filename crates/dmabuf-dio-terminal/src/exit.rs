// SPDX-License-Identifier: MIT OR Apache-2.0
//! Failures of the programs: two lines on standard error and an exit code.

use std::io::Write as _;

use dmabuf_dio::{Error, Refusal, Words};

use crate::signals;

/// The transfer failed.
pub const FAILED: u8 = 1;
/// Wrong usage.
pub const USAGE: u8 = 2;
/// A backend is unavailable.
pub const UNAVAILABLE: u8 = 3;
/// Verification found a difference.
pub const DIFFERENT: u8 = 4;
/// The reader of the output closed early: as if `SIGPIPE` had ended the program.
pub const READER_GONE: u8 = 128 + libc::SIGPIPE as u8;
/// The command could not be run.
pub const CANNOT_RUN: u8 = 126;
/// The command was not found.
pub const NOT_FOUND: u8 = 127;

/// Prints a line to standard error, and ignores errors: `eprintln!` would panic otherwise, and
/// change the exit code.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// The failure, a hint and the exit code.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    what: String,
    hint: String,
    refusals: Vec<Refusal>,
}

/// How hints name the command's options. Pieces and tensors are not the command's.
pub const WORDS: Words = Words {
    kind: |kind| format!("--kind {}", kind.name()),
    setting: |name| format!("--{}", name.replace('_', "-")),
    ..Words::RUST
};

impl Failure {
    /// A failure with an exit code.
    pub fn new(code: u8, what: impl Into<String>, hint: impl Into<String>) -> Self {
        let (what, hint) = (what.into(), hint.into());
        Self { code, what, hint, refusals: Vec::new() }
    }

    /// Fails if a signal was caught. See [`signals::token`].
    ///
    /// # Errors
    ///
    /// `interrupted`, with the exit code of that signal.
    pub fn if_interrupted() -> Result<(), Self> {
        match signals::caught() {
            None => Ok(()),
            Some(signal) => Err(Self::new(128 + signal, "interrupted", "run it again")),
        }
    }

    /// What failed.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// The remedy; may be empty.
    pub fn hint(&self) -> &str {
        &self.hint
    }

    /// Why backends were not used, if no backend was available.
    pub fn refusals(&self) -> &[Refusal] {
        &self.refusals
    }

    /// Prints what failed, after the name of the program, and the hint. Returns the exit code.
    pub fn report(&self, program: &str) -> u8 {
        say(&format!("{program}: {}", self.what));
        if !self.hint.is_empty() {
            say(&format!("{:1$}  {2}", "", program.len(), self.hint));
        }
        self.code
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::Unavailable { .. } | Error::Heap { .. } => UNAVAILABLE,
            Error::Setting { .. } => USAGE,
            Error::Cancelled { .. } => signals::caught().map_or(FAILED, |signal| 128 + signal),
            _ => FAILED,
        };
        let refusals = error.refusals().to_vec();
        Self { refusals, ..Self::new(code, error.to_string(), error.hint().in_words(&WORDS)) }
    }
}

impl From<dmabuf_dio_stream::Error> for Failure {
    fn from(error: dmabuf_dio_stream::Error) -> Self {
        match error {
            dmabuf_dio_stream::Error::Transfer(error)
                if !matches!(error, Error::NoMemory { .. }) =>
            {
                error.into()
            }
            error => {
                use dmabuf_dio_stream::Error::{Setting, Trigger};

                let gone = error.errno().is_some_and(|errno| errno.raw() == libc::EPIPE);
                let code = match error {
                    _ if gone => READER_GONE,
                    Setting { .. } | Trigger { wanted: Some(_), .. } => USAGE,
                    _ => FAILED,
                };
                Self::new(code, error.to_string(), error.hint().in_words(&WORDS))
            }
        }
    }
}

/// A failed write to standard output.
impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::new(FAILED, format!("cannot print: {error}"), "check where the output goes")
    }
}
