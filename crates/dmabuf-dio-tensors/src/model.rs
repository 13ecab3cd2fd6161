// SPDX-License-Identifier: MIT OR Apache-2.0
//! An opened model.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::find::{self, Found};
use crate::format::Format;
use crate::header::{self, Header, MAX_TENSORS};
use crate::index::{Index, MAX_FILES, MAX_INDEX};
use crate::malformed::{Malformed, short};
use crate::metadata::Metadata;
use crate::mistaken::{HEAD, Mistaken};
use crate::open::{self, malformed};
use crate::split_name::SplitName;
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

/// A file of a model.
#[derive(Debug)]
pub struct ModelFile {
    path: PathBuf,
    file: File,
    len: u64,
    metadata: Metadata,
}

impl ModelFile {
    /// The path it was opened by.
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

    /// The open file, for reading.
    pub fn file(&self) -> &File {
        &self.file
    }
}

impl Model {
    /// Opens a model and reads its headers:
    ///
    /// - a safetensors or GGUF file, whatever its name;
    /// - a sharded safetensors model by its index, a file called `*.json`. Only tensors that the
    ///   index names belong to the model;
    /// - a split GGUF model by its first file, `NAME-00001-of-0000N.gguf`;
    /// - a folder: `model.safetensors.index.json`, else `model.safetensors`, else the only index,
    ///   else the only safetensors file or set of shards (`NAME-00001-of-0000N.safetensors`), else the
    ///   only GGUF model in it.
    ///
    /// # Errors
    ///
    /// [`Error::Open`]; [`Error::Read`]; [`Error::NotAFile`]; [`Error::NoModel`];
    /// [`Error::Ambiguous`]; [`Error::MissingParts`]; [`Error::MissingFiles`]; [`Error::Malformed`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        if path.is_dir() {
            return match find::in_folder(path)? {
                Found::File(file) => Self::open_file(&file),
                Found::Shards(files) => Self::open_shards(&files),
            };
        }
        Self::open_file(path)
    }

    fn open_file(path: &Path) -> Result<Self> {
        if find::is_index(path) {
            return Self::open_index(path);
        }
        let (file, header) = ModelFile::open(path)?;
        if file.number_of("split.count").is_some_and(|count| count > 1) {
            return Self::open_split(path, file, header);
        }
        Self::new(header.format, vec![file], header.tensors)
    }

    fn open_index(path: &Path) -> Result<Self> {
        let bytes = open::read(path, MAX_INDEX)?;
        let index = Index::parse(&bytes).map_err(|reason| {
            let found = Mistaken::of(&bytes[..bytes.len().min(HEAD)], bytes.len() as u64);
            malformed(
                path,
                match found {
                    None | Some(Mistaken::Json | Mistaken::Index) => reason,
                    Some(found) => Malformed::NotAModel { found },
                },
            )
        })?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let (mut files, mut tensors) = (Vec::new(), Vec::new());
        for (number, name) in index.files.iter().enumerate() {
            let (file, header) = match ModelFile::open(&folder.join(name)) {
                Err(Error::Open { source, .. }) if source.kind() == ErrorKind::NotFound => {
                    return Err(missing(path, folder, &index));
                }
                other => other?,
            };
            if header.format != Format::Safetensors {
                let what = "a GGUF file in an index of safetensors:";
                return Err(malformed(&file.path, Malformed::Split(what)));
            }
            let ours = header
                .tensors
                .into_iter()
                .filter(|tensor| index.file_of(&tensor.name) == Some(number));
            tensors.extend(ours.map(|tensor| Tensor { file: number, ..tensor }));
            files.push(file);
        }
        let model = Self::new(Format::Safetensors, files, tensors)?;
        match index.tensors.iter().find(|(name, _)| model.tensor(name).is_none()) {
            Some((name, file)) => {
                let file = short(&index.files[*file]);
                Err(malformed(path, Malformed::NotThere { name: short(name), file }))
            }
            None => Ok(model),
        }
    }

    fn open_shards(paths: &[PathBuf]) -> Result<Self> {
        let (mut files, mut tensors) = (Vec::new(), Vec::new());
        for path in paths {
            let (file, header) = ModelFile::open(path)?;
            if header.format != Format::Safetensors {
                return Err(malformed(
                    path,
                    Malformed::Split("a GGUF file among shards of safetensors"),
                ));
            }
            let number = files.len();
            tensors.extend(header.tensors.into_iter().map(|one| Tensor { file: number, ..one }));
            check_count(path, &tensors)?;
            files.push(file);
        }
        Self::new(Format::Safetensors, files, tensors)
    }

    fn open_split(path: &Path, first: ModelFile, header: Header) -> Result<Self> {
        let wrong = |path: &Path, what| malformed(path, Malformed::Split(what));
        let Some(split) = path.file_name().and_then(|name| SplitName::of_gguf(name.to_str()?))
        else {
            return Err(wrong(path, "its name is not NAME-00001-of-0000N.gguf"));
        };
        if split.number != 1 {
            return Err(wrong(path, "it is not the first"));
        }
        if u64::from(split.count) > MAX_FILES {
            let (what, value) = ("files:", split.count.into());
            let reason = Malformed::TooLarge { what, value, limit: MAX_FILES };
            return Err(malformed(path, reason));
        }
        let folder = path.parent().unwrap_or(Path::new(""));
        find::complete(folder, &split, |number| folder.join(split.name(number)).exists())?;
        let total = first.number_of("split.tensors.count");
        let (mut files, mut tensors) = (Vec::new(), Vec::new());
        let mut part = Some((first, header));
        for number in 1..=split.count {
            let (file, header) = match part.take() {
                Some(first) => first,
                None => ModelFile::open(&path.with_file_name(split.name(number)))?,
            };
            let place = (file.number_of("split.no"), file.number_of("split.count"));
            if place != (Some(u64::from(number - 1)), Some(split.count.into())) {
                return Err(wrong(&file.path, "split.no and split.count do not match its name"));
            }
            let file_index = files.len();
            tensors
                .extend(header.tensors.into_iter().map(|one| Tensor { file: file_index, ..one }));
            check_count(path, &tensors)?;
            files.push(file);
        }
        if total.is_some_and(|total| total != tensors.len() as u64) {
            return Err(wrong(path, "split.tensors.count is not the number of tensors"));
        }
        Self::new(Format::Gguf, files, tensors)
    }

    fn new(format: Format, files: Vec<ModelFile>, tensors: Vec<Tensor>) -> Result<Self> {
        if files.len() > 1 {
            header::check_names(&tensors).map_err(|reason| malformed(&files[0].path, reason))?;
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
        self.files.first().map_or(NONE, |first| &first.metadata)
    }
}

fn check_count(path: &Path, tensors: &[Tensor]) -> Result<()> {
    let (what, value) = ("tensors:", tensors.len() as u64);
    if value > MAX_TENSORS {
        return Err(malformed(path, Malformed::TooLarge { what, value, limit: MAX_TENSORS }));
    }
    Ok(())
}

/// The error of an index that names files that are not there.
fn missing(path: &Path, folder: &Path, index: &Index) -> Error {
    let names =
        index.files.iter().filter(|name| !folder.join(name).exists()).map(|name| short(name));
    let missing = find::missing_files(names.collect()).unwrap_or_default();
    Error::MissingFiles {
        path: path.to_owned(),
        missing,
        beside: find::beside(folder, &index.files),
    }
}

impl ModelFile {
    fn open(path: &Path) -> Result<(Self, Header)> {
        let (file, len) = open::open(path)?;
        let mut header = open::header(path, &file, len)?;
        let metadata = std::mem::take(&mut header.metadata);
        Ok((Self { path: path.to_owned(), file, len, metadata }, header))
    }

    fn number_of(&self, key: &str) -> Option<u64> {
        self.metadata.get(key)?.as_u64()
    }

    /// An error of a load from this file.
    pub(crate) fn error(&self, source: dmabuf_dio::Error) -> Error {
        Error::Load { path: self.path.clone(), source }
    }
}
