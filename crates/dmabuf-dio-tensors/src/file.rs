// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file of a model: one of this machine, or a content.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dmabuf_dio::content::Content;
use dmabuf_dio::{CancelToken, Loader, Origin};

use crate::error::{Error, Result};
use crate::header::Header;
use crate::metadata::Metadata;
use crate::{fetch, open};

/// A file of a model. It may be a [`Content`], which is no file of this machine.
#[derive(Debug)]
pub struct ModelFile {
    path: PathBuf,
    held: Held,
    len: u64,
    metadata: Metadata,
}

/// What stays open.
#[derive(Debug)]
enum Held {
    File(File),
    Content(Arc<dyn Content>),
}

impl ModelFile {
    /// The path it was opened by; the name of a content.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Length in bytes when it was opened.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Always `false`: a file of a model is never empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Keys and values of this file's header.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// What its bytes are loaded from.
    pub fn origin(&self) -> Origin<'_> {
        match &self.held {
            Held::File(file) => file.into(),
            Held::Content(content) => content.into(),
        }
    }

    /// The open file, for reading; `None` for a content.
    pub fn file(&self) -> Option<&File> {
        self.origin().file()
    }

    pub(crate) fn open(path: &Path) -> Result<(Self, Header)> {
        let (file, len) = open::open(path)?;
        let header = open::header(path, &file, len)?;
        Ok(Self::with(path.to_owned(), Held::File(file), len, header))
    }

    pub(crate) fn of_content(
        content: Arc<dyn Content>,
        cancel: &CancelToken,
    ) -> Result<(Self, Header)> {
        let header = fetch::header(&*content, cancel)?;
        let (path, len) = (content.name().to_owned(), content.length());
        Ok(Self::with(path, Held::Content(content), len, header))
    }

    fn with(path: PathBuf, held: Held, len: u64, mut header: Header) -> (Self, Header) {
        let metadata = std::mem::take(&mut header.metadata);
        (Self { path, held, len, metadata }, header)
    }

    /// Sets up a load from it.
    pub(crate) fn loader(&self) -> Loader<'_> {
        Loader::from(self.origin())
    }

    /// The number that a key of its header has.
    pub(crate) fn number_of(&self, key: &str) -> Option<u64> {
        self.metadata.get(key)?.as_u64()
    }

    /// An error of a load from this file.
    pub(crate) fn error(&self, source: dmabuf_dio::Error) -> Error {
        Error::Load { path: self.path.clone(), source }
    }
}
