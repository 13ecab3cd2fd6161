// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options that `dmabuf-dio capture` and `dmabuf-dio video` share.

use clap::Args;

use super::address::Target;
use super::values::Policy;

/// The destination of a capture.
#[derive(Debug, Args)]
pub(crate) struct DestinationArgs {
    /// Destination of the captured data
    #[arg(long, value_name = "TO")]
    pub(crate) to: Target,
    /// What to do if TO is slower than the device
    #[arg(long, hide_short_help = true, value_enum, default_value_t = Policy::Block)]
    pub(crate) overrun: Policy,
    /// Replace an existing file and its description
    #[arg(long)]
    pub(crate) force: bool,
}
