// SPDX-License-Identifier: MIT OR Apache-2.0
//! Objects that URLs name.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use dmabuf_dio::content::{Content, Folder};
use dmabuf_dio_remote::{Object, Prefix, escaped};
use dmabuf_dio_terminal::exit::Failure;

use crate::args::remote::RemoteArgs;

/// Opens an object.
pub(crate) fn open(path: &Path, args: &RemoteArgs) -> dmabuf_dio::Result<Arc<dyn Content>> {
    let object = Object::open(&path.to_string_lossy(), &args.settings()?)?;
    Ok(object)
}

/// Connects to the store of a prefix.
pub(crate) fn folder(path: &Path, args: &RemoteArgs) -> dmabuf_dio::Result<Arc<dyn Folder>> {
    let prefix = Prefix::open(&path.to_string_lossy(), &args.settings()?)?;
    Ok(prefix)
}

/// The objects of a prefix: their names in it, their URLs, and their lengths.
pub(crate) fn list(
    path: &Path,
    folder: &dyn Folder,
) -> Result<Vec<(PathBuf, PathBuf, u64)>, Failure> {
    let found = folder.list()?;
    let url = |name: &Path| {
        PathBuf::from(format!("{}{}", path.display(), escaped(&name.to_string_lossy())))
    };
    Ok(found.into_iter().map(|(name, length)| (name.clone(), url(&name), length)).collect())
}
