// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which file of a folder is the model, and which files belong to a split one.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// The names that Hugging Face's libraries look for first.
const INDEX: &str = "model.safetensors.index.json";
const SINGLE: &str = "model.safetensors";

/// The file that a folder's model begins with. The first of these that exists:
/// `model.safetensors.index.json`, `model.safetensors`, the only other index, the only other
/// safetensors file, the only GGUF file or first file of a split one.
pub(crate) fn in_folder(folder: &Path) -> Result<PathBuf> {
    let mut sorts: [Vec<String>; 3] = Default::default();
    let error = |source| Error::Open { path: folder.to_owned(), source };
    for entry in std::fs::read_dir(folder).map_err(error)? {
        let name = entry.map_err(error)?.file_name();
        let Some(name) = name.to_str() else { continue };
        let sort = match name {
            INDEX | SINGLE => return Ok(folder.join(pick(folder))),
            _ if name.ends_with(".safetensors.index.json") => 0,
            _ if name.ends_with(".safetensors") => 1,
            _ if name.strip_suffix(".gguf").is_some()
                && Split::of(name).is_none_or(|split| split.number == 1) =>
            {
                2
            }
            _ => continue,
        };
        // Enough to name them in an error.
        if sorts[sort].len() < 10 {
            sorts[sort].push(name.to_owned());
        }
    }
    match sorts.into_iter().find(|names| !names.is_empty()) {
        None => Err(Error::NoModel { path: folder.to_owned() }),
        Some(names) if names.len() == 1 => Ok(folder.join(&names[0])),
        Some(mut found) => {
            found.sort_unstable();
            Err(Error::Ambiguous { path: folder.to_owned(), found })
        }
    }
}

/// The first of the two usual names that the folder has.
fn pick(folder: &Path) -> &'static str {
    if folder.join(INDEX).exists() { INDEX } else { SINGLE }
}

/// The name of a part of a split GGUF model: `NAME-00001-of-00003.gguf`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Split<'n> {
    prefix: &'n str,
    /// From 1.
    pub(crate) number: u32,
    pub(crate) count: u32,
}

impl<'n> Split<'n> {
    pub(crate) fn of(name: &'n str) -> Option<Self> {
        let (rest, count) = five_digits(name.strip_suffix(".gguf")?)?;
        let (prefix, number) = five_digits(rest.strip_suffix("-of")?)?;
        (1..=count).contains(&number).then_some(Self { prefix, number, count })
    }

    /// The name of part `number`, from 1.
    pub(crate) fn name(&self, number: u32) -> String {
        format!("{}-{number:05}-of-{:05}.gguf", self.prefix, self.count)
    }
}

/// Splits `-00007` off the end.
fn five_digits(text: &str) -> Option<(&str, u32)> {
    let (rest, digits) = text.split_at_checked(text.len().checked_sub(5)?)?;
    let rest = rest.strip_suffix('-')?;
    let all = digits.bytes().all(|byte| byte.is_ascii_digit());
    all.then(|| digits.parse().ok()).flatten().map(|number| (rest, number))
}

/// Whether a path is that of an index.
pub(crate) fn is_index(path: &Path) -> bool {
    path.extension() == Some(OsStr::new("json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_know_their_siblings() {
        let split = Split::of("a-b-00002-of-00012.gguf").expect("a part");
        assert_eq!((split.number, split.count), (2, 12));
        assert_eq!(split.name(12), "a-b-00012-of-00012.gguf");
        for name in [
            "a-00000-of-00001.gguf",
            "a-00002-of-00001.gguf",
            "a-0001-of-00001.gguf",
            "a-00001-of-+0001.gguf",
            "00001-of-00002.gguf",
            "a-00001-of-00002.bin",
            "ß.gguf",
            ".gguf",
        ] {
            assert_eq!(Split::of(name), None, "{name}");
        }
    }
}
