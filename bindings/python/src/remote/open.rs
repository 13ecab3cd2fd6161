// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opens what a URL names: an object, or a model in one or in a folder.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use dmabuf_dio::content::{Content, Folder};
use dmabuf_dio::{CancelToken, Errno, Error};
use dmabuf_dio_remote::Object;
use dmabuf_dio_tensors::{Error as ModelError, Model};

use super::folder::ReopenedFolder;
use super::object::Reopened;
use super::wait::cancellable;
use super::{Checks, Url};

impl Url {
    /// Opens the object. Blocks.
    pub(crate) fn open(
        &self,
        cancel: &CancelToken,
        checks: &Checks,
    ) -> Result<Arc<dyn Content>, Error> {
        let (name, url, settings) = (self.name(), self.0.clone(), checks.settings()?);
        let open = move || Reopened::open(move || Object::open(&url, &settings));
        let object = cancellable(&name, cancel, open)?;
        Ok(Arc::new(object))
    }

    /// Opens the model. Blocks.
    pub(crate) fn open_model(&self, cancel: &CancelToken) -> Result<Model, ModelError> {
        if self.is_folder() {
            return self.open_folder(cancel);
        }
        if self.is_of_store() && self.0.contains('?') {
            // A version of an object: the others of a model have their own.
            let failed = |source| ModelError::Load { path: self.name(), source };
            return Model::open_content(
                self.open(cancel, &Checks::default()).map_err(failed)?,
                cancel,
            );
        }
        let (folder, name) = self.with_folder(cancel, ReopenedFolder::around)?;
        let folder = Patient { folder, cancel };
        let path = folder.name().join(&name);
        match Model::open_in(&folder, &name, cancel) {
            Err(missing) if is_missing(&missing, &path) => {
                // Without the slash at its end, it may be a folder.
                match Self(self.before_query("/")).open_folder(cancel) {
                    Ok(model) => Ok(model),
                    Err(error @ (ModelError::Load { .. } | ModelError::NoModel { .. })) => {
                        Err(if is_about(&error) { error } else { missing })
                    }
                    Err(error) => Err(error),
                }
            }
            opened => opened,
        }
    }

    fn open_folder(&self, cancel: &CancelToken) -> Result<Model, ModelError> {
        let folder = self.with_folder(cancel, ReopenedFolder::open)?;
        Model::open_folder(&Patient { folder, cancel }, cancel)
    }

    /// Looks for credentials, which may take a while.
    fn with_folder<T: Send + 'static>(
        &self,
        cancel: &CancelToken,
        open: fn(&Self) -> Result<T, Error>,
    ) -> Result<T, ModelError> {
        let (url, name) = (self.clone(), self.name());
        let opened = cancellable(&name, cancel, move || open(&url));
        opened.map_err(|source| ModelError::Load { path: name, source })
    }

    fn is_of_store(&self) -> bool {
        let scheme = self.0.split("://").next().unwrap_or_default();
        !["http", "https"].iter().any(|web| scheme.eq_ignore_ascii_case(web))
    }

    /// Whether it ends with a slash, or names no object.
    fn is_folder(&self) -> bool {
        let name = self.name();
        let text = name.to_string_lossy();
        text.ends_with('/') || text.split_once("://").is_some_and(|(_, rest)| !rest.contains('/'))
    }

    /// The URL with a text behind its path.
    fn before_query(&self, text: &str) -> String {
        let end = self.0.find(['?', '#']).unwrap_or(self.0.len());
        let (path, query) = self.0.split_at(end);
        format!("{path}{text}{query}")
    }
}

/// A folder whose calls are given up when they are cancelled.
#[derive(Debug)]
struct Patient<'c> {
    folder: ReopenedFolder,
    cancel: &'c CancelToken,
}

impl Folder for Patient<'_> {
    fn name(&self) -> &Path {
        self.folder.name()
    }

    fn list(&self) -> Result<Vec<(PathBuf, u64)>, Error> {
        let folder = self.folder.clone();
        cancellable(self.name(), self.cancel, move || folder.list())
    }

    fn open(&self, name: &Path) -> Result<Arc<dyn Content>, Error> {
        let (folder, ours) = (self.folder.clone(), name.to_owned());
        cancellable(&self.name().join(name), self.cancel, move || folder.open(&ours))
    }
}

/// Whether an error says that there is no such content.
fn is_missing(error: &ModelError, name: &Path) -> bool {
    matches!(error, ModelError::Load { path, source }
        if path == name && source.errno() == Some(Errno::NOENT))
}

/// Whether an error of a folder tells more than that it has nothing.
fn is_about(error: &ModelError) -> bool {
    match error {
        ModelError::Load { source, .. } => source.errno() != Some(Errno::NOENT),
        ModelError::NoModel { other, .. } => other.is_some(),
        _ => true,
    }
}
