// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files of a capture: samples with a description beside them, or several pairs.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use dmabuf_dio_stream::{RotatingSink, Summary};
use dmabuf_dio_terminal::exit::{FAILED, Failure, USAGE};

use super::device::Chosen;
use super::files::{lock, refuse_to_replace};
use super::notes::Notes;
use super::numbered;
use super::rotate::{Piece, Series};
use super::sigmf::archive;
use super::sigmf::names::{is_description, path_of, refuse_other};
use super::sigmf::sidecar::{Content, Sidecar};
use crate::args::address::Target;
use crate::args::streams::CaptureArgs;

/// A file name for hints.
const EXAMPLE: &str = "NAME.sigmf-data";

/// The files that a capture writes.
pub(crate) enum Recording {
    /// Nothing: the samples do not go to a file.
    Stream,
    Pair(Box<Pair>),
    Series(Series),
}

/// A file of samples and its description.
pub(crate) struct Pair {
    sidecar: Sidecar,
    /// An existing description is replaced.
    force: bool,
    /// Kept until the end.
    _lock: Option<File>,
}

/// The file that gets a description. Existing files are replaced only with `--force`.
pub(crate) fn file(args: &CaptureArgs) -> Result<Option<&Path>, Failure> {
    let destination = &args.destination;
    let Target::File(path) = &destination.to else {
        destination.need_file(
            &[
                ("--rotate", args.rotate.is_some()),
                ("--frequency", args.frequency.is_some()),
                ("--iq", args.iq),
                ("--force", destination.force),
            ],
            EXAMPLE,
        )?;
        return Ok(None);
    };
    refuse_description(path)?;
    if archive::is_archive(path) {
        let what = format!("{} is the name of an archive, which is not written", path.display());
        let hint = "write --to NAME.sigmf-data, then pack both files: tar cf NAME.sigmf \
                    NAME.sigmf-meta NAME.sigmf-data";
        return Err(Failure::new(USAGE, what, hint));
    }
    if args.rotate.is_some() {
        if !destination.force {
            numbered::refuse_to_replace(path, false)?;
        }
        return Ok(Some(path));
    }
    refuse_to_replace(path, destination.force)?;
    if path.exists() && !path.is_file() {
        let described = [("--frequency", args.frequency.is_some()), ("--iq", args.iq)];
        destination.need_file(&described, EXAMPLE)?;
        return Ok(None);
    }
    refuse_to_replace(&path_of(path), destination.force)?;
    refuse_other(path)?;
    Ok(Some(path))
}

fn refuse_description(path: &Path) -> Result<(), Failure> {
    if !is_description(path) {
        return Ok(());
    }
    let what = format!("{} is the name of a description", path.display());
    Err(Failure::new(USAGE, what, "choose one for the samples: NAME.sigmf-data"))
}

impl Recording {
    /// A file and its description; `frame` is the size of a frame in it. Another capture cannot write
    /// it from now on.
    pub(crate) fn new(
        args: &CaptureArgs,
        sidecar: Sidecar,
        chosen: &Chosen,
        frame: u64,
    ) -> Result<Self, Failure> {
        let path = sidecar.data();
        if let Some(rotate) = args.rotate {
            let frames = rotate.frames(chosen, frame, args.common.report.quiet)?;
            return Ok(Self::Series(Series::new(args.destination.force, sidecar, frames)));
        }
        let (force, lock) = (args.destination.force, lock(path)?);
        Ok(Self::Pair(Box::new(Pair { sidecar, force, _lock: lock })))
    }

    /// The sink for frames of `frame` bytes; `None` if the target opens its own.
    pub(crate) fn sink(&self, frame: u64) -> Result<Option<RotatingSink<'_>>, Failure> {
        match self {
            Self::Series(series) => series.sink(frame).map(Some),
            _ => Ok(None),
        }
    }

    /// Writes a first description, in case the process is killed.
    pub(crate) fn begin(&self) -> Result<(), Failure> {
        // Each file of a series gets its own when it begins.
        let Self::Pair(pair) = self else { return Ok(()) };
        let Pair { sidecar, force, .. } = &**pair;
        let nothing = Content::nothing_yet();
        let written = if *force { sidecar.write(&nothing) } else { sidecar.create(&nothing) };
        written.map_err(|error| {
            // It was created just now.
            let _ = std::fs::remove_file(sidecar.data());
            cannot(&sidecar.path, &error)
        })
    }

    /// Starts the thread that writes the descriptions while the stream runs.
    pub(crate) fn notes(&self) -> Result<Option<Notes<Content>>, Failure> {
        Ok(match self {
            Self::Stream => None,
            Self::Pair(pair) => {
                let sidecar = pair.sidecar.clone();
                Some(Notes::start(move |content| sidecar.write(&content))?)
            }
            Self::Series(series) => {
                let series = series.clone();
                Some(Notes::start(move |content| series.describe(&content))?)
            }
        })
    }

    /// Frames per file, if the recording is cut.
    pub(crate) fn cut(&self) -> Option<u64> {
        match self {
            Self::Series(series) => Some(series.frames),
            _ => None,
        }
    }

    /// Writes the descriptions. Without any samples, removes the files: they would only obstruct the
    /// next capture.
    pub(crate) fn end(&self, summary: &Summary) -> Result<(), Failure> {
        match self {
            Self::Stream => Ok(()),
            Self::Pair(pair) => {
                let sidecar = &pair.sidecar;
                if summary.bytes == 0 {
                    let _ = std::fs::remove_file(sidecar.data());
                    let _ = std::fs::remove_file(&sidecar.path);
                    return Ok(());
                }
                let written = sidecar.write(&Content::of(summary));
                written.map_err(|error| cannot(&sidecar.path, &error))
            }
            Self::Series(series) => series
                .describe(&Content::of(summary))
                .map_err(|error| cannot(&path_of(&series.file(0)), &error)),
        }
    }

    /// The path of the description.
    pub(crate) fn description(&self) -> Option<PathBuf> {
        match self {
            Self::Stream => None,
            Self::Pair(pair) => Some(pair.sidecar.path.clone()),
            Self::Series(series) => Some(path_of(&series.file(0))),
        }
    }

    /// The files of a recording that is cut.
    pub(crate) fn pieces(&self, frames: u64) -> Option<Vec<Piece>> {
        match self {
            Self::Series(series) => Some(series.pieces(frames)),
            _ => None,
        }
    }
}

fn cannot(path: &Path, error: &io::Error) -> Failure {
    Failure::new(
        FAILED,
        format!("{}: cannot write it: {error}", path.display()),
        "check the folder and its free space",
    )
}
