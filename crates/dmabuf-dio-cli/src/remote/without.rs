// SPDX-License-Identifier: MIT OR Apache-2.0
//! A command without the feature `remote`: it says so where it is given a URL.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dmabuf_dio::content::{Content, Folder};
use dmabuf_dio::{Buffer, Options, Report};
use dmabuf_dio_terminal::exit::Failure;
use dmabuf_dio_terminal::progress::Bar;

use crate::args::remote::{REMEDY, RemoteArgs, WHAT, missing};
use crate::args::url::shown;

pub(crate) fn open(path: &Path, _: &RemoteArgs) -> dmabuf_dio::Result<Arc<dyn Content>> {
    Err(left_out(path))
}

pub(crate) fn folder(path: &Path, _: &RemoteArgs) -> dmabuf_dio::Result<Arc<dyn Folder>> {
    Err(left_out(path))
}

fn left_out(path: &Path) -> dmabuf_dio::Error {
    dmabuf_dio::Error::Content {
        name: shown(path),
        offset: 0,
        length: 0,
        what: WHAT.into(),
        errno: dmabuf_dio::Errno::from_raw(libc::EOPNOTSUPP),
        remedy: REMEDY.into(),
    }
}

pub(crate) fn list(path: &Path, _: &dyn Folder) -> Result<Vec<(PathBuf, PathBuf, u64)>, Failure> {
    Err(missing(path))
}

pub(crate) fn save(
    path: &Path,
    _: Options,
    _: Option<&Bar>,
    _: &Buffer,
    _: Range<u64>,
) -> Result<Report, Failure> {
    Err(missing(path))
}
