// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line of `dmabuf-dio-bench compare`.

use std::path::PathBuf;

use clap::{Args, value_parser};

use super::methods::OwnMethod;
use super::safetensors::Tensors;
use crate::args::{CommonArgs, EXIT_CODES, whole_pages};

/// Arguments of `compare`.
#[derive(Debug, Args)]
#[command(about = "Every method of loading a file into memory, and the disk's maximum")]
#[command(after_help = format!("\
Each method is measured in its own process, from knowing only the path to having all bytes in memory.
fio, if it is installed, measures the disk's maximum. As root, the program allows huge pages and sets
read-ahead while a method that needs them is measured, and restores the settings afterwards.

  dmabuf-dio   the library, by backend           read()     through the page cache
  mmap         the mapped file, every page       pread,     past the page cache, O_DIRECT,
               of it touched                     io_uring   into anonymous memory

A peer is a command that is started with the path as an argument, followed by --verify SEED if it is
to compare the content. It prints {{\"ready\":true}}, waits for a line on its standard input, loads the
file, and prints one line of JSON, which docs/notes/measuring.md describes.

Examples:
  dmabuf-dio-bench compare --dir /mnt/nvme
  dmabuf-dio-bench compare --sizes 13G --runs 3 --ways memfd,read-malloc,mmap-8m
  dmabuf-dio-bench compare --sizes 4K,16K,64K --runs 9
  dmabuf-dio-bench compare --processes 4 --sizes 1G --tensors many
  dmabuf-dio-bench compare --peer 'safetensors=python3 load_safetensors.py'

{EXIT_CODES}"))]
pub(crate) struct CompareArgs {
    /// Sizes of a file, multiples of the page size
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = whole_pages,
          default_value = "512K,8M,128M,1G,3G")]
    pub(crate) sizes: Vec<u64>,
    /// Runs of each way, five times as many for files below 1 MiB; ways alternate
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = value_parser!(u32).range(1..=99))]
    pub(crate) runs: u32,
    /// Only these of the built-in ways; fio and peers are always measured
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = own_way)]
    pub(crate) ways: Vec<&'static OwnMethod>,
    /// Processes that load at the same time, each its own file
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = value_parser!(u64).range(1..=64))]
    pub(crate) processes: u64,
    /// Content of the file
    #[arg(long, value_enum, default_value_t = Tensors::Few)]
    pub(crate) tensors: Tensors,
    /// Another program that loads a file, for comparison; may be repeated
    #[arg(long = "peer", value_name = "NAME=COMMAND", value_parser = peer)]
    pub(crate) peers: Vec<Peer>,
    /// Compare every byte in every run, not only in the first of each way
    #[arg(long)]
    pub(crate) verify: bool,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// Another program that loads a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) name: String,
    pub(crate) command: String,
}

/// Load a file once, in one way: started by `compare`
#[derive(Debug, Args)]
#[command(hide = true)]
pub(crate) struct CompareWayArgs {
    #[arg(long, value_parser = own_way)]
    pub(crate) way: &'static OwnMethod,
    /// Compare every byte with the expected content
    #[arg(long, value_name = "SEED")]
    pub(crate) verify: Option<u64>,
    #[arg(long, value_enum)]
    pub(crate) tensors: Tensors,
    pub(crate) file: PathBuf,
}

fn own_way(id: &str) -> Result<&'static OwnMethod, String> {
    OwnMethod::named(id).ok_or_else(|| {
        let ids: Vec<&str> = OwnMethod::all().map(|own| own.id).collect();
        format!("there is no such way; the ways are {}", ids.join(", "))
    })
}

fn peer(text: &str) -> Result<Peer, String> {
    match text.split_once('=') {
        Some((name, command)) if !name.is_empty() && !command.trim().is_empty() => {
            Ok(Peer { name: name.into(), command: command.into() })
        }
        _ => Err("write NAME=COMMAND".into()),
    }
}
