// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the files of a model in a folder.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::Path;

use crate::error::{Error, Result};
use crate::index::MAX_FILES;
use crate::split_name::SplitName;
use crate::store::{self, Store};

/// The names that Hugging Face's libraries look for first.
const INDEX: &str = "model.safetensors.index.json";
const SINGLE: &str = "model.safetensors";

/// Names that an error has at most.
const NAMED: usize = 10;

/// Ends of names of models in formats that are not read.
const OTHERS: [&str; 8] = [".bin", ".pt", ".pth", ".ckpt", ".onnx", ".h5", ".msgpack", ".tflite"];

/// The model files of a folder, by their names in it.
pub(crate) enum Found {
    /// An index, a single file, or the first part of a split GGUF model.
    File(String),
    /// All shards of a safetensors model that has no index.
    Shards(Vec<String>),
}

/// The model of a folder. The first of these that exists: `model.safetensors.index.json`,
/// `model.safetensors`, the only other index, the only other safetensors file or set of shards, the only
/// GGUF file or split model.
pub(crate) fn in_folder(store: Store<'_>) -> Result<Found> {
    let names = match store.names() {
        Err(error) if store::cannot_list(&error) => return unlisted(store),
        names => names?,
    };
    let usual = [INDEX, SINGLE].into_iter().filter(|usual| names.iter().any(|name| name == usual));
    let usual: Vec<_> = usual.collect();
    // A link may lead nowhere.
    if let Some(name) = usual.iter().find(|name| store.is_there(name)).or(usual.last()) {
        return Ok(Found::File((*name).to_owned()));
    }
    let mut sorts: [Sort; 3] = Default::default();
    let mut other = None;
    for name in names.iter().map(String::as_str) {
        match name {
            _ if name.ends_with(".safetensors.index.json") => sorts[0].add(name, None),
            _ if name.ends_with(".safetensors") => {
                sorts[1].add(name, SplitName::of_safetensors(name));
            }
            _ if name.strip_suffix(".gguf").is_some() => {
                sorts[2].add(name, SplitName::of_gguf(name));
            }
            _ if OTHERS.iter().any(|end| name.ends_with(end)) => other = Some(name.to_owned()),
            _ => {}
        }
    }
    match sorts.into_iter().find(|sort| !sort.is_empty()) {
        Some(sort) => sort.only(store),
        None => Err(Error::NoModel { path: store.folder().to_owned(), other }),
    }
}

/// The first of the usual names that a folder has, which does not tell its names.
fn unlisted(store: Store<'_>) -> Result<Found> {
    Ok(Found::File(if store.has(INDEX)? { INDEX } else { SINGLE }.to_owned()))
}

/// Files of one sort.
#[derive(Default)]
struct Sort {
    /// Files that are no parts.
    single: Vec<String>,
    /// By the name of the last part: the numbers that are there.
    sets: BTreeMap<String, BTreeSet<u32>>,
}

impl Sort {
    fn add(&mut self, name: &str, split: Option<SplitName<'_>>) {
        match split.filter(|split| u64::from(split.count) <= MAX_FILES) {
            Some(split) => {
                let last = split.name(split.count);
                if self.sets.len() < NAMED || self.sets.contains_key(&last) {
                    self.sets.entry(last).or_default().insert(split.number);
                }
            }
            None if self.single.len() < NAMED => self.single.push(name.to_owned()),
            None => {}
        }
    }

    fn is_empty(&self) -> bool {
        self.single.is_empty() && self.sets.is_empty()
    }

    /// The only model.
    fn only(mut self, store: Store<'_>) -> Result<Found> {
        match (&self.single[..], self.sets.len()) {
            ([name], 0) => return Ok(Found::File(name.clone())),
            ([], 1) => {}
            _ => {
                let mut found = self.single;
                // One existing part of each set.
                found.extend(self.sets.into_iter().filter_map(|(last, numbers)| {
                    let split =
                        SplitName::of_gguf(&last).or_else(|| SplitName::of_safetensors(&last))?;
                    Some(split.name(*numbers.first()?))
                }));
                found.sort_unstable();
                found.truncate(NAMED);
                return Err(Error::Ambiguous { path: store.folder().to_owned(), found });
            }
        }
        let (last, numbers) = self.sets.pop_first().unwrap_or_default();
        let gguf = SplitName::of_gguf(&last);
        let Some(split) = gguf.or_else(|| SplitName::of_safetensors(&last)) else {
            return Err(Error::NoModel { path: store.folder().to_owned(), other: None });
        };
        let missing = (1..=split.count).filter(|number| !numbers.contains(number));
        let missing = missing.map(|number| split.name(number)).collect();
        if let Some(error) = incomplete(store, &split, missing) {
            return Err(error);
        }
        Ok(match gguf {
            Some(split) => Found::File(split.name(1)),
            None => Found::Shards((1..=split.count).map(|number| split.name(number)).collect()),
        })
    }
}

/// The error of a model of which these parts are missing; `None` if there are none.
pub(crate) fn incomplete(
    store: Store<'_>,
    split: &SplitName<'_>,
    missing: Vec<String>,
) -> Option<Error> {
    let (path, missing) = (store.folder().to_owned(), some_of(missing)?);
    Some(Error::MissingParts { path, missing, count: split.count })
}

/// Some of the names and how many more there are, for an error; `None` without names.
pub(crate) fn some_of(mut names: Vec<String>) -> Option<Vec<String>> {
    let more = names.len().saturating_sub(NAMED);
    names.truncate(NAMED);
    if more > 0 {
        names.push(format!("and {more} more"));
    }
    (!names.is_empty()).then_some(names)
}

/// A safetensors file beside an index that does not name it.
pub(crate) fn beside(store: Store<'_>, named: &[String]) -> Option<String> {
    let names = store.names().ok()?.into_iter();
    let other = names.filter(|name| name.ends_with(".safetensors") && !named.contains(name));
    other.min_by_key(|name| (name != SINGLE, name.clone()))
}

/// Whether a path names an index.
pub(crate) fn is_index(path: &Path) -> bool {
    path.extension() == Some(OsStr::new("json"))
}
