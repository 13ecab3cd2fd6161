// SPDX-License-Identifier: MIT OR Apache-2.0
//! Folders of objects, which a child of fork(2) connects to again.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use dmabuf_dio::Error;
use dmabuf_dio::content::{Content, Folder};
use dmabuf_dio_remote::{Prefix, Settings};

use super::Url;
use super::object::Reopened;
use crate::lock::{Lock, generation};

/// A folder, and the names of its contents for messages.
#[derive(Clone, Debug)]
pub(super) struct ReopenedFolder(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Of the folder, or of an object in it.
    url: Url,
    is_object: bool,
    name: PathBuf,
    /// With the number of forks before it was opened.
    current: Lock<(u32, Arc<Prefix>)>,
}

impl ReopenedFolder {
    /// The folder of a URL.
    pub(super) fn open(url: &Url) -> Result<Self, Error> {
        let prefix = Prefix::open(&url.0, &Settings::default())?;
        Ok(Self::with(url, false, prefix))
    }

    /// The folder that the object of a URL is in, and its name there.
    pub(super) fn around(url: &Url) -> Result<(Self, String), Error> {
        let (prefix, name) = Prefix::around(&url.0, &Settings::default())?;
        Ok((Self::with(url, true, prefix), name))
    }

    fn with(url: &Url, is_object: bool, prefix: Arc<Prefix>) -> Self {
        let (url, name) = (url.clone(), prefix.name().to_owned());
        let current = Lock::new((generation(), prefix));
        Self(Arc::new(Inner { url, is_object, name, current }))
    }

    fn prefix(&self) -> Result<Arc<Prefix>, Error> {
        let Inner { url, is_object, current, .. } = &*self.0;
        let mut current = current.lock();
        if current.0 != generation() {
            // Nothing is asked for yet.
            let fresh = if *is_object {
                Prefix::around(&url.0, &Settings::default())?.0
            } else {
                Prefix::open(&url.0, &Settings::default())?
            };
            let old = std::mem::replace(&mut *current, (generation(), fresh));
            // Its threads are the parent's: nobody would end them.
            std::mem::forget(old);
        }
        Ok(Arc::clone(&current.1))
    }
}

impl Folder for ReopenedFolder {
    fn name(&self) -> &Path {
        &self.0.name
    }

    fn list(&self) -> Result<Vec<(PathBuf, u64)>, Error> {
        self.prefix()?.list()
    }

    fn open(&self, name: &Path) -> Result<Arc<dyn Content>, Error> {
        let (folder, name) = (self.clone(), name.to_owned());
        Ok(Arc::new(Reopened::open(move || folder.prefix()?.object(&name))?))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let current = self.current.get_mut();
        if current.0 != generation() {
            // As above.
            std::mem::forget(Arc::clone(&current.1));
        }
    }
}
