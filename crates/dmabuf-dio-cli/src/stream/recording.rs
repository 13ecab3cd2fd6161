// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files of a capture: samples with a description beside them, an archive of both, or several
//! pairs.

use std::io;
use std::path::{Path, PathBuf};

use dmabuf_dio_stream::{FileSink, Sink, Summary};

use super::archive::{self, Archive};
use super::args::CaptureArgs;
use super::device::Chosen;
use super::rotate::{self, Piece, Series};
use super::sigmf::{self, Sidecar};
use super::target::{Target, refuse_to_replace};
use crate::exit::{FAILED, Failure, USAGE};

/// What a capture writes beside its samples.
pub(crate) enum Recording<'a> {
    /// Nothing: the samples do not go to a file.
    Stream,
    Pair(&'a Sidecar),
    Archive(Archive<'a>, &'a Sidecar),
    Series(Series<'a>),
}

/// The file that gets a description. Existing files are replaced only with `--force`.
pub(crate) fn file(args: &CaptureArgs) -> Result<Option<&Path>, Failure> {
    let Target::File(path) = &args.to else {
        if args.rotate.is_some() {
            let what = format!("--rotate needs a file, not {}", args.to);
            return Err(Failure::new(USAGE, what, "leave it out, or write --to NAME.sigmf-data"));
        }
        return Ok(None);
    };
    refuse_description(path)?;
    if args.rotate.is_some() {
        if archive::is_archive(path) {
            let what = "--rotate writes pairs of files, not archives";
            return Err(Failure::new(USAGE, what, "choose another name: NAME.sigmf-data"));
        }
        if !args.force {
            rotate::refuse_to_replace(path, false)?;
        }
        return Ok(Some(path));
    }
    refuse_to_replace(path, args.force)?;
    if path.exists() && !path.is_file() {
        return Ok(None);
    }
    if archive::is_archive(path) {
        Archive::new(path).map_err(|error| {
            let what = format!("{}: no archive can have this name: {error}", path.display());
            Failure::new(USAGE, what, "choose a shorter one")
        })?;
    } else {
        refuse_to_replace(&sigmf::path_of(path), args.force)?;
    }
    Ok(Some(path))
}

/// The same for samples that a sender describes: no archives.
pub(super) fn pair(to: &Target, force: bool) -> Result<Option<&Path>, Failure> {
    let Target::File(path) = to else { return Ok(None) };
    refuse_description(path)?;
    if archive::is_archive(path) {
        let what = format!("{}: archives are written by capture only", path.display());
        return Err(Failure::new(USAGE, what, "choose a file for the samples: NAME.sigmf-data"));
    }
    refuse_to_replace(path, force)?;
    if path.exists() && !path.is_file() {
        return Ok(None);
    }
    refuse_to_replace(&sigmf::path_of(path), force)?;
    Ok(Some(path))
}

/// The file of a capture that gets a description of another kind, at `description` of its path.
pub(super) fn frames_file<'a>(
    args: &'a CaptureArgs,
    description: &dyn Fn(&Path) -> PathBuf,
) -> Result<Option<&'a Path>, Failure> {
    let Target::File(path) = &args.to else { return Ok(None) };
    refuse_to_replace(path, args.force)?;
    if path.exists() && !path.is_file() {
        return Ok(None);
    }
    refuse_to_replace(&description(path), args.force)?;
    Ok(Some(path))
}

fn refuse_description(path: &Path) -> Result<(), Failure> {
    if !sigmf::is_description(path) {
        return Ok(());
    }
    let what = format!("{} is the name of a description", path.display());
    Err(Failure::new(USAGE, what, "choose one for the samples: NAME.sigmf-data"))
}

impl<'a> Recording<'a> {
    /// `file` and its description; `frame` is the size of a frame in it.
    pub(crate) fn new(
        args: &CaptureArgs,
        file: Option<(&'a Path, &'a Sidecar)>,
        chosen: &Chosen,
        frame: u64,
    ) -> Result<Self, Failure> {
        let Some((path, sidecar)) = file else { return Ok(Self::Stream) };
        if let Some(rotate) = args.rotate {
            let frames = rotate.frames(chosen, frame)?;
            return Ok(Self::Series(Series::new(path, args.force, sidecar, frames)));
        }
        if archive::is_archive(path) {
            let archive = Archive::new(path).map_err(|error| cannot(path, &error))?;
            return Ok(Self::Archive(archive, sidecar));
        }
        Ok(Self::Pair(sidecar))
    }

    /// The sink for frames of `frame` bytes, if it is not that of the target.
    pub(crate) fn sink(&self, frame: u64) -> Result<Option<Box<dyn Sink + '_>>, Failure> {
        Ok(match self {
            Self::Stream | Self::Pair(_) => None,
            Self::Archive(archive, _) => {
                Some(Box::new(FileSink::create_at(archive.path(), archive::START)?))
            }
            Self::Series(series) => {
                series.remove_earlier()?;
                Some(Box::new(series.sink(frame)))
            }
        })
    }

    /// Writes a first description, in case the process is killed.
    pub(crate) fn begin(&self) -> Result<(), Failure> {
        match self {
            // Each file gets its own when it begins.
            Self::Stream | Self::Series(_) => Ok(()),
            Self::Pair(sidecar) => {
                sidecar.write(&[], 0).map_err(|error| cannot(&sidecar.path, &error))
            }
            Self::Archive(archive, sidecar) => sidecar
                .in_archive(&[], 0)
                .and_then(|text| archive.begin(&text))
                .map_err(|error| cannot(archive.path(), &error)),
        }
    }

    /// Frames per file, if the recording is cut.
    pub(crate) fn cut(&self) -> Option<u64> {
        match self {
            Self::Series(series) => Some(series.frames()),
            _ => None,
        }
    }

    /// Writes the descriptions. `unit` and `frame` are the sizes of a frame in the summary and in
    /// the file. Without any samples, removes the files: they would only obstruct the next capture.
    pub(crate) fn end(&self, summary: &Summary, unit: u64, frame: u64) -> Result<(), Failure> {
        let (gaps, bytes) = (&summary.gaps, summary.bytes);
        let nothing = bytes == 0;
        match self {
            Self::Stream => Ok(()),
            Self::Pair(sidecar) if nothing => {
                let _ = std::fs::remove_file(sidecar.data());
                let _ = std::fs::remove_file(&sidecar.path);
                Ok(())
            }
            Self::Pair(sidecar) => {
                sidecar.write(gaps, bytes).map_err(|error| cannot(&sidecar.path, &error))
            }
            Self::Archive(archive, _) if nothing => {
                let _ = std::fs::remove_file(archive.path());
                Ok(())
            }
            Self::Archive(archive, sidecar) => sidecar
                .in_archive(gaps, bytes)
                .and_then(|text| archive.finish(&text, bytes / unit * frame))
                .map_err(|error| cannot(archive.path(), &error)),
            Self::Series(series) => series
                .describe(gaps, bytes, unit)
                .map_err(|error| cannot(&series.first().with_extension("sigmf-meta"), &error)),
        }
    }

    /// Where the description is.
    pub(crate) fn description(&self) -> Option<PathBuf> {
        match self {
            Self::Stream => None,
            Self::Pair(sidecar) => Some(sidecar.path.clone()),
            Self::Archive(archive, _) => Some(archive.path().to_owned()),
            Self::Series(series) => Some(sigmf::path_of(&series.first())),
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
