// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line of `dmabuf-dio keep`.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use dmabuf_dio::Options;
use dmabuf_dio_keep::Name;

use super::remote::RemoteArgs;

/// Keep files in memory, once for all programs of this machine; without arguments, list what is kept
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dmabuf-dio keep llama=/data/model.gguf
  dmabuf-dio load keep:llama -- llama-cli -m {}
  dmabuf-dio keep
  rm /run/dmabuf-dio/llama

--help shows all options, what is kept where, and the exit codes.")]
#[command(after_long_help = "\
SOURCE is loaded into a file on a tmpfs, /run/dmabuf-dio/NAME, or $XDG_RUNTIME_DIR/dmabuf-dio/NAME for
users other than root. It is loaded once, however many ask. Asked again, it is there; if SOURCE
has changed, it is loaded anew, and programs that use the old file keep it. A folder is kept with all its
files. The mode lets nobody write, and lets read who may read SOURCE; an object may be read by all.

keep:NAME stands for that file wherever a path is taken, in Python and C, too; keep:NAME/FILE for a
file of a kept folder. Another folder is searched if it is in the variable DMABUF_DIO_KEEP.

The memory stays in use until the file is removed: rm, or rm -r for a folder. A tmpfs of its own
for it, which may fill half of the memory, in huge pages:
  mount -t tmpfs -o size=50%,mode=755,huge=within_size tmpfs /run/dmabuf-dio

Examples:
  dmabuf-dio keep llama=/data/model.gguf
  dmabuf-dio keep tiny=DIR encoder=/data/encoder.safetensors
  dmabuf-dio load keep:llama -- llama-cli -m {}
  dmabuf-dio load keep:tiny -- vllm serve {}
  dmabuf-dio keep --dir /dev/shm/mine llama=/data/model.gguf
  dmabuf-dio keep llama=s3://BUCKET/model.gguf --sums model.gguf.sums
  dmabuf-dio keep --json | jq '.kept[].path'

Exit codes:
  0    done: all of it is kept
  1    something cannot be kept
  2    wrong usage
  130  interrupted by Ctrl-C")]
#[expect(clippy::struct_excessive_bools, reason = "flags of the command line")]
pub(crate) struct KeepArgs {
    /// What to keep, and its name: a file, a folder, or the URL of an object or of a prefix, which ends with /
    #[arg(value_name = "NAME=SOURCE", value_parser = parse_wanted())]
    pub(crate) wanted: Vec<Wanted>,
    /// Folder on a tmpfs to keep it in [default: that of the variable `DMABUF_DIO_KEEP`, else the user's]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) dir: Option<PathBuf>,
    /// Hold one source as a service of systemd, and hand out descriptors: dmabuf-dio-keep@NAME.socket
    #[arg(long, hide_short_help = true, conflicts_with_all = ["dir", "json", "verbose"])]
    pub(crate) hold: bool,
    /// Do not use huge pages
    #[arg(long, hide_short_help = true)]
    pub(crate) small_pages: bool,
    /// Read SOURCE without `O_DIRECT`
    #[arg(long, hide_short_help = true)]
    pub(crate) buffered: bool,
    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Print all details of the loads
    #[arg(long, short, conflicts_with = "json")]
    pub(crate) verbose: bool,
    /// Print errors only
    #[arg(long, short, conflicts_with_all = ["json", "verbose"])]
    pub(crate) quiet: bool,
}

impl KeepArgs {
    /// The settings of the loads.
    pub(crate) fn options(&self) -> Options {
        Options { direct: !self.buffered, huge_pages: !self.small_pages, ..Options::default() }
    }
}

/// A source and its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) name: Name,
    pub(crate) source: PathBuf,
}

fn parse_wanted() -> impl TypedValueParser<Value = Wanted> {
    OsStringValueParser::new().try_map(wanted)
}

/// Splits `NAME=SOURCE` at the first equals sign.
fn wanted(word: OsString) -> Result<Wanted, String> {
    let bytes = word.as_bytes();
    let end = bytes.iter().position(|byte| *byte == b'=');
    let end = end.ok_or_else(|| "give it a name: write NAME=SOURCE".to_owned())?;
    let name =
        std::str::from_utf8(&bytes[..end]).map_err(|_| "the name is not UTF-8".to_owned())?;
    let name = Name::new(name).map_err(|error| format!("{error}\n{}", error.hint()))?;
    let source = word.into_vec().split_off(end + 1);
    if source.is_empty() {
        return Err("the source is missing: write NAME=SOURCE".into());
    }
    Ok(Wanted { name, source: OsString::from_vec(source).into() })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn name_ends_at_the_first_equals_sign() {
        let parsed = wanted("a=b=c".into()).expect("a pair");
        assert_eq!((parsed.name.as_str(), parsed.source.as_path()), ("a", Path::new("b=c")));
        for bad in ["", "a", "=b", "a=", "../a=b", "a/b=c", ".a=b"] {
            assert!(wanted(bad.into()).is_err(), "{bad}");
        }
        let odd = OsString::from_vec(b"a=\xff".to_vec());
        assert_eq!(wanted(odd).expect("a pair").source.as_os_str().as_bytes(), b"\xff");
    }
}
