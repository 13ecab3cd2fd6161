// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line, as plain data.

pub(crate) mod address;
pub(crate) mod destination;
pub(crate) mod files;
pub(crate) mod keep;
#[cfg(feature = "remote")]
pub(crate) mod remote;
#[cfg(not(feature = "remote"))]
#[path = "remote_without.rs"]
pub(crate) mod remote;
pub(crate) mod streams;
#[cfg(feature = "remote")]
pub(crate) mod url;
#[cfg(not(feature = "remote"))]
#[path = "url_without.rs"]
pub(crate) mod url;
pub(crate) mod values;
pub(crate) mod video;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use self::files::{EXIT_CODES, LoadArgs, SaveArgs};
use self::keep::KeepArgs;
use self::streams::{CaptureArgs, ReplayArgs};
use self::video::VideoArgs;

/// Load files into dma-bufs, save dma-bufs and stream samples, without CPU copies
#[derive(Debug, Parser)]
#[command(name = "dmabuf-dio", version, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Doctor(DoctorArgs),
    Devices(DevicesArgs),
    Load(LoadArgs),
    Save(SaveArgs),
    Keep(KeepArgs),
    #[cfg(feature = "remote")]
    Sum(self::remote::SumArgs),
    Capture(CaptureArgs),
    Video(VideoArgs),
    Replay(ReplayArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
}

/// Show which backends work here, and how to enable the others
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dmabuf-dio doctor
  dmabuf-dio doctor model.safetensors
  dmabuf-dio doctor --json | jq '.backends[] | select(.available)'

Exit codes: 0 done, 1 FILE cannot be opened, 2 wrong usage")]
pub(crate) struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Also show what this file and its file system support
    pub(crate) file: Option<PathBuf>,
}

/// List IIO devices (channels, rates, support for dma-bufs, triggers, users) and video devices
#[derive(Debug, Args)]
#[command(after_help = "\
With DEVICE, its attributes are listed, too, with their current and available values. Their names can
be used with `dmabuf-dio capture --set`. For a video device, /dev/video0, frame sizes are listed.

To find out whether a buffer supports dma-bufs, it is opened briefly, unless it is in use. Processes of
other users are listed only for root.

Use iio_attr of libiio-utils for debug attributes (-D), attributes of buffers (-B), and devices on other
machines and on USB (-u).

Examples:
  dmabuf-dio devices
  dmabuf-dio devices ad9361-phy
  dmabuf-dio devices --json | jq '.devices[] | select(.users != []) | .name'

Exit codes: 0 done, 1 there is no such device, 2 wrong usage")]
pub(crate) struct DevicesArgs {
    /// Name, label or number of one device: cf-ad9361-lpc, iio:device0, 0; or /dev/video0
    pub(crate) device: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Print a completion script for a shell
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dmabuf-dio completions bash > /etc/bash_completion.d/dmabuf-dio
  dmabuf-dio completions zsh > ~/.zfunc/_dmabuf-dio")]
pub(crate) struct CompletionsArgs {
    /// Shell to print the script for
    pub(crate) shell: clap_complete::Shell,
}

/// Write the manual pages of this command and its subcommands
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dmabuf-dio man /usr/local/share/man/man1
  dmabuf-dio man . && man ./dmabuf-dio-load.1")]
pub(crate) struct ManArgs {
    /// Existing folder for the pages
    pub(crate) folder: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
