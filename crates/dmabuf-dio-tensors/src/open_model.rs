// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opens models: finds their files, and reads the headers.

use std::path::Path;
use std::sync::Arc;

use dmabuf_dio::CancelToken;
use dmabuf_dio::content::{Content, Folder};

use crate::error::{Error, Result};
use crate::file::ModelFile;
use crate::find::{self, Found};
use crate::format::Format;
use crate::header::{Header, MAX_TENSORS};
use crate::index::{Index, MAX_FILES, MAX_INDEX};
use crate::malformed::{Malformed, short};
use crate::mistaken::{HEAD, Mistaken};
use crate::model::Model;
use crate::open::{self, malformed};
use crate::split_name::SplitName;
use crate::store::{self, Store};
use crate::tensor::Tensor;

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
            return in_folder(Store::Disk(path));
        }
        let store = Store::Disk(path.parent().unwrap_or(Path::new("")));
        if find::is_index(path) {
            return by_index(store, path, &open::read(path, MAX_INDEX)?);
        }
        let (file, header) = ModelFile::open(path)?;
        by_first(store, file, header)
    }

    /// Opens the model in a folder of contents, as [`open`](Self::open) does in a folder of this machine. If
    /// the folder cannot be listed, one of the two usual names is expected in it. Of the headers of several files, some
    /// are read at the same time. `cancel` stops it.
    ///
    /// # Errors
    ///
    /// [`Error::Load`], as for [`Content::read`] and [`Folder::open`], and those of [`open`](Self::open).
    pub fn open_folder(folder: &dyn Folder, cancel: &CancelToken) -> Result<Self> {
        in_folder(Store::Contents(folder, cancel))
    }

    /// Opens the model that a content of a folder begins: a file, an index, or the first file of a split model. The
    /// others are looked for in the same folder.
    ///
    /// # Errors
    ///
    /// As for [`open_folder`](Self::open_folder).
    pub fn open_in(folder: &dyn Folder, name: &str, cancel: &CancelToken) -> Result<Self> {
        by_name(Store::Contents(folder, cancel), name)
    }

    /// Opens a model in one content, a safetensors or GGUF file. The header is read by itself, by one request if it is
    /// short.
    ///
    /// # Errors
    ///
    /// [`Error::Load`], as for [`Content::read`]; [`Error::NeedsFolder`] for an index and the first file of a split
    /// model; [`Error::Malformed`].
    pub fn open_content(content: Arc<dyn Content>, cancel: &CancelToken) -> Result<Self> {
        if find::is_index(content.name()) {
            return Err(Error::NeedsFolder { path: content.name().to_owned() });
        }
        let (file, header) = ModelFile::of_content(content, cancel)?;
        if is_split(&file) {
            return Err(Error::NeedsFolder { path: file.path().to_owned() });
        }
        Self::new(header.format, vec![file], header.tensors)
    }
}

fn in_folder(store: Store<'_>) -> Result<Model> {
    match find::in_folder(store)? {
        Found::File(name) => by_name(store, &name),
        Found::Shards(names) => of_shards(store, &names),
    }
}

fn by_name(store: Store<'_>, name: &str) -> Result<Model> {
    let path = store.path(name);
    if find::is_index(&path) {
        return by_index(store, &path, &store.read(name, MAX_INDEX)?);
    }
    let (file, header) = store.open(name)?;
    by_first(store, file, header)
}

fn by_first(store: Store<'_>, file: ModelFile, header: Header) -> Result<Model> {
    if is_split(&file) {
        return of_split(store, file, header);
    }
    Model::new(header.format, vec![file], header.tensors)
}

fn is_split(file: &ModelFile) -> bool {
    file.number_of("split.count").is_some_and(|count| count > 1)
}

fn by_index(store: Store<'_>, path: &Path, bytes: &[u8]) -> Result<Model> {
    let index = Index::parse(bytes).map_err(|reason| {
        let found = Mistaken::of(&bytes[..bytes.len().min(HEAD)], bytes.len() as u64);
        malformed(
            path,
            match found {
                None | Some(Mistaken::Json | Mistaken::Index) => reason,
                Some(found) => Malformed::NotAModel { found },
            },
        )
    })?;
    let (mut files, mut tensors) = (Vec::new(), Vec::new());
    let opened = store.each(&index.files, |file, header| {
        if header.format != Format::Safetensors {
            let what = "a GGUF file in an index of safetensors:";
            return Err(malformed(file.path(), Malformed::Split(what)));
        }
        let number = files.len();
        let ours =
            header.tensors.into_iter().filter(|tensor| index.file_of(&tensor.name) == Some(number));
        tensors.extend(ours.map(|tensor| Tensor { file: number, ..tensor }));
        files.push(file);
        Ok(())
    });
    opened.map_err(|error| {
        if store::is_missing(&error) {
            missing(store, path, &index).unwrap_or(error)
        } else {
            error
        }
    })?;
    let model = Model::new(Format::Safetensors, files, tensors)?;
    match index.tensors.iter().find(|(name, _)| model.tensor(name).is_none()) {
        Some((name, file)) => {
            let file = short(&index.files[*file]);
            Err(malformed(path, Malformed::NotThere { name: short(name), file }))
        }
        None => Ok(model),
    }
}

fn of_shards(store: Store<'_>, names: &[String]) -> Result<Model> {
    let (mut files, mut tensors) = (Vec::new(), Vec::new());
    store.each(names, |file, header| {
        if header.format != Format::Safetensors {
            let what = "a GGUF file among shards of safetensors";
            return Err(malformed(file.path(), Malformed::Split(what)));
        }
        let number = files.len();
        tensors.extend(header.tensors.into_iter().map(|one| Tensor { file: number, ..one }));
        check_count(file.path(), &tensors)?;
        files.push(file);
        Ok(())
    })?;
    Model::new(Format::Safetensors, files, tensors)
}

fn of_split(store: Store<'_>, first: ModelFile, header: Header) -> Result<Model> {
    let path = first.path().to_owned();
    let wrong = |path: &Path, what| malformed(path, Malformed::Split(what));
    let name = path.file_name().and_then(|name| name.to_str());
    let Some(split) = name.and_then(SplitName::of_gguf) else {
        return Err(wrong(&path, "its name is not NAME-00001-of-0000N.gguf"));
    };
    if split.number != 1 {
        return Err(wrong(&path, "it is not the first"));
    }
    if u64::from(split.count) > MAX_FILES {
        let (what, value) = ("files:", split.count.into());
        let reason = Malformed::TooLarge { what, value, limit: MAX_FILES };
        return Err(malformed(&path, reason));
    }
    let names: Vec<_> = (2..=split.count).map(|number| split.name(number)).collect();
    let incomplete = || find::incomplete(store, &split, store.missing(names.iter().cloned()));
    // Whether contents are there is known once they are opened.
    if let Some(error) = incomplete().filter(|_| matches!(store, Store::Disk(_))) {
        return Err(error);
    }
    let total = first.number_of("split.tensors.count");
    let (mut files, mut tensors) = (Vec::new(), Vec::new());
    let mut take = |file: ModelFile, header: Header| {
        let number = files.len() as u64;
        let place = (file.number_of("split.no"), file.number_of("split.count"));
        if place != (Some(number), Some(split.count.into())) {
            return Err(wrong(file.path(), "split.no and split.count do not match its name"));
        }
        let file_index = files.len();
        tensors.extend(header.tensors.into_iter().map(|one| Tensor { file: file_index, ..one }));
        check_count(&path, &tensors)?;
        files.push(file);
        Ok(())
    };
    take(first, header)?;
    store.each(&names, take).map_err(|error| {
        if store::is_missing(&error) { incomplete().unwrap_or(error) } else { error }
    })?;
    if total.is_some_and(|total| total != tensors.len() as u64) {
        return Err(wrong(&path, "split.tensors.count is not the number of tensors"));
    }
    Model::new(Format::Gguf, files, tensors)
}

fn check_count(path: &Path, tensors: &[Tensor]) -> Result<()> {
    let (what, value) = ("tensors:", tensors.len() as u64);
    if value > MAX_TENSORS {
        return Err(malformed(path, Malformed::TooLarge { what, value, limit: MAX_TENSORS }));
    }
    Ok(())
}

/// The error of an index that names files that are not there.
fn missing(store: Store<'_>, path: &Path, index: &Index) -> Option<Error> {
    let names = store.missing(index.files.iter().cloned());
    let missing = find::some_of(names.iter().map(|name| short(name)).collect())?;
    let beside = find::beside(store, &index.files);
    Some(Error::MissingFiles { path: path.to_owned(), missing, beside })
}
