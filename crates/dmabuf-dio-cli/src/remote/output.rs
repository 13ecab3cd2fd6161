// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is printed about a save.

/// As `--quiet` and `--json` choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    Nothing,
    Text,
    Json,
}
