// SPDX-License-Identifier: MIT OR Apache-2.0
//! Failures of the programs: two lines on standard error and an exit code. Who asks for details gets the
//! reasons of all backends, too.

use std::io::Write as _;
use std::process::ExitCode;

use dmabuf_dio::{Error, Refusal, Words};
use serde::Serialize;

use crate::args::CommonArgs;
use crate::show::{json, refused};
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

/// Prints a line to standard error, if anybody reads it: `eprintln!` would panic otherwise, and
/// change the exit code.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// What failed, a hint and the exit code.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    what: String,
    hint: String,
    refusals: Vec<Refusal>,
    details: Details,
}

/// What is printed beside the two lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Details {
    None,
    /// Lines on standard error.
    Text,
    /// JSON on standard output, or on standard error.
    Json {
        output: bool,
    },
}

/// Why no backend is available, as JSON.
#[derive(Debug, Serialize)]
struct FailureOutput<'a> {
    schema: u32,
    error: &'a str,
    hint: &'a str,
    refusals: &'a [Refusal],
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
        Self { code, what, hint, refusals: Vec::new(), details: Details::None }
    }

    /// The failure with what these options ask for. `output`: whether standard output is free.
    pub(crate) fn with_details(self, common: &CommonArgs, output: bool) -> Self {
        let details = match (common.json, common.verbose) {
            (true, _) => Details::Json { output },
            (false, true) => Details::Text,
            (false, false) => Details::None,
        };
        Self { details, ..self }
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

    /// Prints what failed, after the name of the program, and the hint. Returns the exit code.
    pub fn report(&self, program: &str) -> ExitCode {
        say(&format!("{program}: {}", self.what));
        if !self.hint.is_empty() {
            say(&format!("{:1$}  {2}", "", program.len(), self.hint));
        }
        match self.details {
            // Other failures may come after a report.
            _ if self.refusals.is_empty() => {}
            Details::None => {}
            Details::Text => {
                for refusal in &self.refusals {
                    say(&format!("not used    {}", refused(refusal)));
                }
            }
            Details::Json { output } => self.print_json(output),
        }
        self.code.into()
    }

    fn print_json(&self, output: bool) {
        let Self { what, hint, refusals, .. } = self;
        let Ok(text) = json(&FailureOutput { schema: 1, error: what, hint, refusals }) else {
            return;
        };
        // The exit code stays that of the failure.
        let _ = if output {
            std::io::stdout().write_all(text.as_bytes())
        } else {
            std::io::stderr().write_all(text.as_bytes())
        };
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
