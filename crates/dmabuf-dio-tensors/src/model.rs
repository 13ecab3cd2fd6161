// SPDX-License-Identifier: MIT OR Apache-2.0
//! An opened model.

use crate::error::{Error, Result};
use crate::file::ModelFile;
use crate::format::Format;
use crate::header;
use crate::metadata::Metadata;
use crate::open::malformed;
use crate::tensor::Tensor;

/// A model whose headers were read and checked. Its tensors are loaded by [`loader`](Self::loader).
///
/// The files stay open: replacing a file later has no effect, truncating it makes the load fail.
/// `Send` and `Sync`.
#[derive(Debug)]
pub struct Model {
    format: Format,
    files: Vec<ModelFile>,
    /// In the order of files, and of bytes in them.
    tensors: Vec<Tensor>,
    /// Indexes of `tensors`, sorted by name.
    by_name: Vec<u32>,
}

impl Model {
    pub(crate) fn new(format: Format, files: Vec<ModelFile>, tensors: Vec<Tensor>) -> Result<Self> {
        if files.len() > 1 {
            header::check_names(&tensors).map_err(|reason| malformed(files[0].path(), reason))?;
        }
        let mut by_name: Vec<u32> = (0..tensors.len() as u32).collect();
        by_name.sort_unstable_by_key(|index| tensors[*index as usize].name.as_str());
        Ok(Self { format, files, tensors, by_name })
    }

    /// The format of the files.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The files, in the order of the model.
    pub fn files(&self) -> &[ModelFile] {
        &self.files
    }

    /// Whether its files are contents, each byte of which has to be fetched.
    pub fn is_of_contents(&self) -> bool {
        self.files.iter().any(|file| file.file().is_none())
    }

    /// The tensors, in the order of files and of their bytes in them.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// The tensor at a place.
    pub(crate) fn numbered(&self, number: usize) -> Result<&Tensor> {
        let count = self.tensors.len();
        self.tensors.get(number).ok_or(Error::NoNumber { number, count })
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.index_of(name).map(|index| &self.tensors[index])
    }

    /// The index of the tensor of this name in [`tensors`](Self::tensors).
    pub fn index_of(&self, name: &str) -> Option<usize> {
        let by_name = |index: &u32| self.tensors[*index as usize].name.as_str().cmp(name);
        let found = self.by_name.binary_search_by(by_name).ok()?;
        Some(self.by_name[found] as usize)
    }

    /// Keys and values of the first file; [`ModelFile::metadata`] has those of the others. For an
    /// index without tensors there are none.
    pub fn metadata(&self) -> &Metadata {
        const NONE: &Metadata = &Metadata::new(None);
        self.files.first().map_or(NONE, ModelFile::metadata)
    }
}
