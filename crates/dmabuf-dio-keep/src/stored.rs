// SPDX-License-Identifier: MIT OR Apache-2.0
//! Objects of stores as sources.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use dmabuf_dio::Loader;
use dmabuf_dio::content::{Content, Folder};

use crate::error::{Error, Result};
use crate::identity::Identity;
use crate::source::{File, Files, Source};

/// What an address leads to.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Opened {
    /// An object.
    Content(Arc<dyn Content>),
    /// Objects whose names begin alike.
    Folder(Arc<dyn Folder>),
}

/// An object of a store, or a folder of them. Nothing says who may read it there: here all users may.
pub struct Stored {
    shown: String,
    asked: String,
    open: Box<dyn Fn() -> dmabuf_dio::Result<Opened> + Send + Sync>,
}

impl Stored {
    /// The object or folder that `open` opens. It is opened anew whenever its versions are asked for. `shown`: its
    /// address, without secrets.
    pub fn new(
        shown: impl Into<String>,
        open: impl Fn() -> dmabuf_dio::Result<Opened> + Send + Sync + 'static,
    ) -> Self {
        Self { shown: shown.into(), asked: String::new(), open: Box::new(open) }
    }

    /// What else tells it from others that are shown alike, such as a digest of the whole URL and of the sums that were
    /// asked for: where it differs, the source is loaded anew. No secrets.
    #[must_use]
    pub fn asked(mut self, asked: impl Into<String>) -> Self {
        self.asked = asked.into();
        self
    }
}

impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stored").field("shown", &self.shown).finish_non_exhaustive()
    }
}

impl Source for Stored {
    fn shown(&self) -> String {
        self.shown.clone()
    }

    fn files(&self) -> Result<Files> {
        let asked = self.asked.clone();
        match (self.open)()? {
            Opened::Content(content) => {
                let place = content.name().file_name().map_or_else(|| "file".into(), PathBuf::from);
                let files = vec![file(content, place)];
                Ok(Files { is_folder: false, files, asked, ..Files::default() })
            }
            Opened::Folder(folder) => {
                let open = |(place, _): (PathBuf, u64)| Ok(file(folder.open(&place)?, place));
                let files = folder.list()?.into_iter().map(open).collect::<Result<Vec<_>>>()?;
                if files.is_empty() {
                    let what = "there are no objects of that prefix".into();
                    return Err(refused(folder.name(), what, "check the name of the prefix"));
                }
                Ok(Files { is_folder: true, files, asked, ..Files::default() })
            }
        }
    }
}

fn file(content: Arc<dyn Content>, place: PathBuf) -> File {
    let length = content.length();
    let identity = match content.version() {
        Some(version) => Identity::Version { version, length },
        None => Identity::Unknown { length },
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    File {
        places: vec![place],
        identity,
        mode: 0o444,
        group: rustix::process::getegid().as_raw(),
        modified: (now.as_secs() as i64, now.subsec_nanos()),
        path: None,
        loader: Loader::from_content(content),
    }
}

fn refused(name: &Path, what: String, remedy: &'static str) -> Error {
    Error::Source { path: name.to_owned(), what, remedy }
}
