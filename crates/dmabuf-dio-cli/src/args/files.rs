// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command lines of `dmabuf-dio load` and `dmabuf-dio save`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use dmabuf_dio::{Backend, Kind, Numa, Options};
use dmabuf_dio_terminal::exit::{Failure, USAGE};
use dmabuf_dio_terminal::size::parse_size;

use super::remote::RemoteArgs;
use super::url::is_url;

pub(super) const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    the transfer failed
  2    wrong usage
  3    the requested backend, or every backend, is unavailable
  4    --verify found a difference
  126  COMMAND could not be run
  127  COMMAND was not found
  130  interrupted by Ctrl-C
  else the exit code of COMMAND";

/// Load a file into a buffer, print a report, and run a command with the buffer
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  dmabuf-dio load model.safetensors --verify
  dmabuf-dio load model.safetensors -- ./runtime --weights-from-fd
  dmabuf-dio load model.gguf -- llama-cli -m {}

--help shows all options, what COMMAND gets, and the exit codes.")]
#[command(after_long_help = format!("\
FILE may be an object: s3://BUCKET/KEY, gs://BUCKET/KEY, az://CONTAINER/KEY, https://HOST/PATH. It is
fetched by several requests at a time, and its version does not change meanwhile. Credentials,
endpoints and proxies are in the environment: AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, HTTPS_PROXY and
others (docs/remote.md). env:NAME stands for the URL in the variable NAME, for URLs with secrets.

COMMAND inherits the buffer as a file descriptor:
  DMABUF_DIO_FD      its number
  DMABUF_DIO_OFFSET  offset of the content in the buffer
  DMABUF_DIO_LEN     length of the content

By path: {{}} in an argument of COMMAND is replaced by a path. The file there has the name and the
content of FILE, and is sealed against changes. If FILE is a folder, its large files are loaded and
the others are linked. All parts of a split GGUF are loaded. {{{{}}}} stands for the characters {{}}.
dmabuf-dio then waits for COMMAND, passes signals on to it, and exits with its exit code, or with
128+N if signal N ended it. So it does for a memfd that --lock keeps in memory.
  DMABUF_DIO_FILES   path of a list of the loaded files and their descriptors, in JSON

Examples:
  dmabuf-dio load model.safetensors
  dmabuf-dio load model.safetensors --verify
  dmabuf-dio load capture.bin --offset 16MiB --length 4K --json
  dmabuf-dio load model.safetensors -- ./runtime --weights-from-fd
  dmabuf-dio load A -- dmabuf-dio save B
  dmabuf-dio load model.gguf -- llama-cli -m {{}}
  dmabuf-dio load DIR --min-size 1MiB -- vllm serve {{}}
  dmabuf-dio load keep:NAME -- llama-cli -m {{}}
  dmabuf-dio load s3://BUCKET/model.gguf --sums model.gguf.sums
  dmabuf-dio load s3://BUCKET/MODEL/ -- vllm serve {{}}

{EXIT_CODES}"))]
pub(crate) struct LoadArgs {
    /// Regular file, block device, URL or keep:NAME to load; for a command with {} also a folder, or a URL that ends with /
    pub(crate) file: PathBuf,
    /// Backend for the transfer
    #[arg(long, value_enum, default_value_t = Choice::AUTO)]
    pub(crate) backend: Choice,
    /// Kind of buffer to load into; any: a dma-buf if one can be had, else a memfd [with {}: file]
    #[arg(long, value_parser = parse_kind(), default_value = "any")]
    pub(crate) kind: Kind,
    /// Offset in FILE
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "0")]
    pub(crate) offset: u64,
    /// Bytes to load [default: to the end of FILE]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) length: Option<u64>,
    /// Bytes to allocate before issuing the first read
    #[arg(long, hide_short_help = true, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) allocation_step: Option<u64>,
    /// Of a folder, load files of at least this size and link the others [default: 16MiB]
    #[arg(long, hide_short_help = true, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) min_size: Option<u64>,
    /// Do not use huge pages for memfds and udmabufs
    #[arg(long, hide_short_help = true)]
    pub(crate) small_pages: bool,
    /// NUMA nodes of the buffer: local, interleave or the number of a node [default: left open]
    #[arg(long, hide_short_help = true, value_name = "NODES", value_parser = parse_numa())]
    pub(crate) numa: Option<Numa>,
    /// Lock the buffer in memory, so that it is never swapped out; waits for COMMAND if that needs it
    #[arg(long, hide_short_help = true)]
    pub(crate) lock: bool,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
    /// Compare every byte with FILE, read again through the page cache, or from the store
    #[arg(long)]
    pub(crate) verify: bool,
    /// Command to run with the buffer, and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Save a buffer inherited from `dmabuf-dio load` or another program to a file
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dmabuf-dio load A -- dmabuf-dio save B

--help shows all options, what happens to FILE, and the exit codes.")]
#[command(after_long_help = format!("\
FILE is replaced once the new file is complete and durable. Until then it is unchanged.
If FILE is a symbolic link, its target is replaced. A dangling link is refused, as by cp.
A block device is written in place. An object (s3://, gs://, az://) is sent in parts: the store shows
nothing of it until all are there.

Examples:
  dmabuf-dio load A -- dmabuf-dio save B
  dmabuf-dio save capture.bin --fd 5 --length 16MiB

{EXIT_CODES}"))]
pub(crate) struct SaveArgs {
    /// File, block device or URL to write
    pub(crate) file: PathBuf,
    /// Backend for the transfer
    #[arg(long, value_enum, default_value_t = Choice::AUTO)]
    pub(crate) backend: Choice,
    #[arg(help = "File descriptor of the buffer [default: $DMABUF_DIO_FD]")]
    #[arg(long, hide_short_help = true, value_name = "NUMBER")]
    pub(crate) fd: Option<i32>,
    #[arg(help = "Offset in the buffer [default: $DMABUF_DIO_OFFSET; with --fd: 0]")]
    #[arg(long, hide_short_help = true, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) buf_offset: Option<u64>,
    #[arg(help = "Bytes to save [default: to the end of the content; with --fd: of the buffer]")]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) length: Option<u64>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// Options of load and save.
#[derive(Clone, Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "flags of the command line")]
pub(crate) struct CommonArgs {
    /// Bytes per request, a multiple of the page size
    #[arg(long, hide_short_help = true, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) block_size: Option<u64>,
    /// Requests in flight
    #[arg(long, hide_short_help = true, value_name = "NUMBER")]
    pub(crate) queue_depth: Option<u32>,
    /// Open FILE without `O_DIRECT`
    #[arg(long, hide_short_help = true)]
    pub(crate) buffered: bool,
    /// Print the report as JSON, or why no backend is available
    #[arg(long)]
    pub(crate) json: bool,
    /// Print all details of the transfer, and why other backends were not used
    #[arg(long, short, conflicts_with = "json")]
    pub(crate) verbose: bool,
    /// Print errors only
    #[arg(long, short, conflicts_with_all = ["json", "verbose"])]
    pub(crate) quiet: bool,
}

/// Parses the value of `--kind`. The help lists the possible values.
fn parse_kind() -> impl TypedValueParser<Value = Kind> {
    PossibleValuesParser::new(Kind::ALL.map(Kind::name)).try_map(|name| name.parse::<Kind>())
}

/// Parses the value of `--numa`.
fn parse_numa() -> impl TypedValueParser<Value = Numa> {
    clap::builder::StringValueParser::new().try_map(|text| text.parse::<Numa>())
}

impl LoadArgs {
    /// Puts the URL in the variable NAME in place of `env:NAME`: the command line of a process is no place for
    /// secrets.
    pub(crate) fn resolve(&mut self) -> Result<(), Failure> {
        let name = self.file.to_str().and_then(|text| text.strip_prefix("env:"));
        let Some(name) = name.map(str::to_owned) else { return Ok(()) };
        let url = std::env::var_os(&name).map(PathBuf::from).filter(|url| is_url(url));
        self.file = url.ok_or_else(|| {
            let what = format!("the variable {name} has no URL of an object");
            Failure::new(USAGE, what, "set it; a file of such a name is ./env:NAME")
        })?;
        Ok(())
    }

    /// The settings of the load.
    pub(crate) fn options(&self) -> Options {
        Options {
            kind: self.kind,
            allocation_step: self.allocation_step,
            huge_pages: !self.small_pages,
            numa: self.numa,
            lock: self.lock,
            ..self.common.options(self.backend)
        }
    }
}

impl CommonArgs {
    /// The settings of the transfer.
    pub(crate) fn options(&self, backend: Choice) -> Options {
        Options {
            backend: backend.into(),
            block_size: self.block_size,
            queue_depth: self.queue_depth,
            direct: !self.buffered,
            ..Options::default()
        }
    }
}

/// The value of `--backend`: `auto`, or a backend of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice(Option<Backend>);

impl Choice {
    const AUTO: Self = Self(None);
    const ALL: [Self; Backend::ALL.len() + 1] = {
        let mut all = [Self::AUTO; Backend::ALL.len() + 1];
        let mut index = 0;
        while index < Backend::ALL.len() {
            all[index + 1] = Self(Some(Backend::ALL[index]));
            index += 1;
        }
        all
    };
}

impl ValueEnum for Choice {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(match self.0 {
            None => PossibleValue::new("auto").help("The first backend that works"),
            Some(backend) => PossibleValue::new(backend.name()).help(backend.summary()),
        })
    }
}

impl From<Choice> for Option<Backend> {
    fn from(choice: Choice) -> Self {
        choice.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[derive(clap::Parser)]
    struct Only {
        #[command(flatten)]
        load: LoadArgs,
    }

    #[test]
    fn every_backend_can_be_chosen() {
        for backend in Backend::ALL {
            let load = Only::try_parse_from(["load", "file", "--backend", backend.name()]);
            assert_eq!(load.expect("a backend").load.backend, Choice(Some(backend)));
        }
        let load = Only::try_parse_from(["load", "file"]).expect("no backend").load;
        assert_eq!(load.backend, Choice::AUTO);
    }
}
