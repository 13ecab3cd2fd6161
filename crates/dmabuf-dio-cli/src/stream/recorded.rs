// SPDX-License-Identifier: MIT OR Apache-2.0
//! The samples of a recording and their description.

use std::io::ErrorKind;

use dmabuf_dio_stream::{FileSource, Source as _};
use dmabuf_dio_terminal::exit::{FAILED, Failure, USAGE, say};
use serde_json::Value;

use super::sigmf::archive::{self, Found};
use super::sigmf::described::Described;
use super::sigmf::names::{self, UNFINISHED, path_of};
use super::sigmf::promises::{self, Samples};
use super::sigmf::repair::repair;
use crate::args::streams::ReplayArgs;

/// The position of the samples in an archive.
#[derive(Clone, Copy)]
pub(super) struct Part {
    /// The first byte, and the number of bytes.
    pub(super) start: u64,
    pub(super) bytes: u64,
    /// The last frame may be cut.
    pub(super) cut: bool,
}

/// The position of the samples, and their description.
#[derive(Default)]
pub(super) struct Recorded {
    pub(super) part: Option<Part>,
    pub(super) described: Option<Described>,
}

impl Recorded {
    pub(super) fn find(args: &ReplayArgs) -> Result<Self, Failure> {
        if archive::is_archive(&args.file) { Self::in_archive(args) } else { Self::in_file(args) }
    }

    fn in_archive(args: &ReplayArgs) -> Result<Self, Failure> {
        let (file, shown) = (&args.file, args.file.display());
        let Found { name, start, bytes, cut, description } =
            archive::find(file).map_err(|error| {
                let what = format!("{shown}: cannot read the archive: {error}");
                let hint =
                    "it must be an uncompressed tar file of one recording, as SigMF specifies it";
                Failure::new(FAILED, what, hint)
            })?;
        if cut {
            say(&format!(
                "dmabuf-dio: {shown} ends early, its {bytes} bytes of samples are output"
            ));
        }
        let known = description["global"][UNFINISHED].as_u64();
        if let Some(known) = known {
            say(&format!(
                "dmabuf-dio: the capture of {shown} had not ended: whether samples are missing after \
                 its first {known} frames is not known"
            ));
        }
        let described = check(
            args,
            &description,
            &Samples { part: (start, start + bytes), name: Some(&name), cut, ..samples(args) },
        )?;
        let part = Part { start, bytes, cut: cut || known.is_some() };
        Ok(Self { part: Some(part), described: Some(described) })
    }

    fn in_file(args: &ReplayArgs) -> Result<Self, Failure> {
        let (file, path) = (&args.file, path_of(&args.file));
        repair(file);
        let read = match std::fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::default()),
            read => read.map_err(|error| error.to_string()),
        };
        let value = match read.and_then(|bytes| names::parse(&bytes)) {
            Ok(value) => value,
            Err(why) => {
                refuse(args, &format!("{}: {why}", path.display()))?;
                return Ok(Self::default());
            }
        };
        let other = names::described(file, &value).filter(|other| other != file && other.exists());
        if let Some(other) = other {
            let (path, other) = (path.display(), other.display());
            refuse(args, &format!("{path} describes another file, {other}"))?;
            return Ok(Self::default());
        }
        let described = check(args, &value, &samples(args))?;
        Ok(Self { part: None, described: Some(described) })
    }

    /// The source of the samples, in frames of `frame` bytes.
    pub(super) fn source(&self, args: &ReplayArgs, frame: u64) -> Result<FileSource, Failure> {
        let source = match self.range(frame) {
            None => FileSource::open(&args.file, frame)?,
            Some((start, bytes)) => FileSource::open_part(&args.file, frame, start, bytes)?,
        };
        if source.facts().len == Some(0) {
            let what = format!("{} has no samples: nothing was output", args.file.display());
            return Err(Failure::new(FAILED, what, "choose another file"));
        }
        Ok(source)
    }

    /// The first byte and the number of bytes of the whole frames, if the file has other bytes, too.
    pub(super) fn range(&self, frame: u64) -> Option<(u64, u64)> {
        // A killed capture may have cut a frame.
        let Part { start, bytes, cut } = self.part?;
        Some((start, if cut { bytes / frame * frame } else { bytes }))
    }
}

/// The samples to check a description against, for a file that has only samples.
fn samples(args: &ReplayArgs) -> Samples<'_> {
    Samples {
        file: &args.file,
        part: (0, u64::MAX),
        name: None,
        cut: false,
        with_rate: args.common.rate.is_none(),
        with_format: args.format.is_none(),
    }
}

fn check(args: &ReplayArgs, value: &Value, samples: &Samples<'_>) -> Result<Described, Failure> {
    for why in promises::broken(value, samples)? {
        refuse(args, &format!("the description of {}: {why}", args.file.display()))?;
    }
    Ok(Described::of_value(value))
}

/// Refuses a description that cannot be honoured. With `--force`, prints what is overridden.
fn refuse(args: &ReplayArgs, why: &str) -> Result<(), Failure> {
    if args.force {
        say(&format!("dmabuf-dio: --force overrides {why}"));
        return Ok(());
    }
    let hint = "correct the description, or output the bytes unchanged: --force";
    Err(Failure::new(USAGE, why, hint))
}
