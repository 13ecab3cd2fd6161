// SPDX-License-Identifier: MIT OR Apache-2.0
//! Failures of what is kept, with exit codes.

use dmabuf_dio_keep::Error;
use dmabuf_dio_terminal::exit::{FAILED, Failure, USAGE, WORDS};

/// The failure, in the words of the command.
pub(crate) fn failure(error: Error) -> Failure {
    let code = match error {
        Error::Load(error) => return error.into(),
        Error::Name { .. } => USAGE,
        _ => FAILED,
    };
    Failure::new(code, error.to_string(), error.hint().in_words(&WORDS))
}
