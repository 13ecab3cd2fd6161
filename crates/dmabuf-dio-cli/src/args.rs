// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use dmabuf_dio::Backend;

use crate::bench::args::BenchArgs;
use crate::size::parse_size;

const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    the transfer failed
  2    wrong usage
  3    the backend asked for, or every backend, is unavailable
  4    --verify found a difference
  126  COMMAND could not be run
  127  COMMAND was not found
  130  interrupted by Ctrl-C
  else the exit code of COMMAND";

/// Load a file into a dma-buf with no copy by the CPU, and save one
#[derive(Debug, Parser)]
#[command(name = "dmabuf-dio", version, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Doctor(DoctorArgs),
    Load(LoadArgs),
    Save(SaveArgs),
    Bench(BenchArgs),
    Completions(CompletionsArgs),
}

/// Show what this kernel, its devices and a file offer, and what would change it
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
    /// Also say what this file and its file system offer
    pub(crate) file: Option<PathBuf>,
}

/// Load a file into a buffer, report how, and run a command with the buffer
#[derive(Debug, Args)]
#[command(after_help = format!("\
COMMAND inherits the buffer as a file descriptor:
  DMABUF_DIO_FD      its number
  DMABUF_DIO_OFFSET  where in the buffer the content begins
  DMABUF_DIO_LEN     length of the content

Examples:
  dmabuf-dio load model.safetensors
  dmabuf-dio load model.safetensors --verify
  dmabuf-dio load capture.bin --offset 16MiB --length 4K --json
  dmabuf-dio load model.safetensors -- ./runtime --weights-from-fd
  dmabuf-dio load A -- dmabuf-dio save B

{EXIT_CODES}"))]
pub(crate) struct LoadArgs {
    /// Regular file or block device to load
    pub(crate) file: PathBuf,
    /// Way to move the bytes
    #[arg(long, value_enum, default_value_t = Choice::Auto)]
    pub(crate) backend: Choice,
    /// Where in FILE to begin
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "0")]
    pub(crate) offset: u64,
    /// How much to load [default: up to the end of FILE]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) length: Option<u64>,
    /// Memory that is allocated before the first read is issued
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) gather: Option<u64>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    /// Compare every byte with FILE, read again through the page cache
    #[arg(long)]
    pub(crate) verify: bool,
    /// Program to run with the buffer, and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Save a buffer, inherited from `dmabuf-dio load` or another program, to a file
#[derive(Debug, Args)]
#[command(after_help = format!("\
FILE is replaced when the new one is complete and durable; until then it stays as it was.
A block device is written in place.

Examples:
  dmabuf-dio load A -- dmabuf-dio save B
  dmabuf-dio save capture.bin --fd 5 --length 16MiB

{EXIT_CODES}"))]
pub(crate) struct SaveArgs {
    /// File or block device to write
    pub(crate) file: PathBuf,
    /// Way to move the bytes
    #[arg(long, value_enum, default_value_t = Choice::Auto)]
    pub(crate) backend: Choice,
    #[arg(help = "File descriptor of the buffer [default: $DMABUF_DIO_FD]")]
    #[arg(long, value_name = "NUMBER")]
    pub(crate) fd: Option<i32>,
    #[arg(help = "Where in the buffer to begin [default: $DMABUF_DIO_OFFSET, with --fd 0]")]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) offset: Option<u64>,
    #[arg(help = "How much to save [default: $DMABUF_DIO_LEN, with --fd to the buffer's end]")]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) length: Option<u64>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// Options of load and save.
#[derive(Debug, Args)]
pub(crate) struct CommonArgs {
    /// Bytes per request, a multiple of the page size
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) chunk: Option<u64>,
    /// Requests in flight
    #[arg(long, value_name = "NUMBER")]
    pub(crate) depth: Option<u32>,
    /// Open FILE without `O_DIRECT`
    #[arg(long)]
    pub(crate) buffered: bool,
    /// Print the report as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Print nothing but errors
    #[arg(long, short, conflicts_with = "json")]
    pub(crate) quiet: bool,
}

/// Print a script that completes this command's arguments in a shell
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dmabuf-dio completions bash > /etc/bash_completion.d/dmabuf-dio
  dmabuf-dio completions zsh > ~/.zfunc/_dmabuf-dio")]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Choice {
    /// The first of these that works
    Auto,
    /// The kernel module's ioctls
    Module,
    /// The dma-buf's pages as `io_uring` fixed buffers, lent by the module
    Slot,
    /// A memfd, and a dma-buf made of it
    Udmabuf,
    /// A memfd, filled by `io_uring`
    Memfd,
    /// `pread` and `pwrite`, through the page cache
    Buffered,
}

impl From<Choice> for Option<Backend> {
    fn from(choice: Choice) -> Self {
        match choice {
            Choice::Auto => None,
            Choice::Module => Some(Backend::Module),
            Choice::Slot => Some(Backend::UringSlot),
            Choice::Udmabuf => Some(Backend::Udmabuf),
            Choice::Memfd => Some(Backend::Memfd),
            Choice::Buffered => Some(Backend::Buffered),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn choices_have_the_library_s_names() {
        for choice in Choice::value_variants() {
            let name = choice.to_possible_value().expect("a name").get_name().to_owned();
            match Option::<Backend>::from(*choice) {
                Some(backend) => assert_eq!(backend.name(), name),
                None => assert_eq!(name, "auto"),
            }
        }
    }
}
