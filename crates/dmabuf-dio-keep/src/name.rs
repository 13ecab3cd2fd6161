// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of what is kept, and paths that begin with `keep:`.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use crate::error::{Error, Result};

/// How paths begin that name something kept.
const PREFIX: &str = "keep:";

/// A name under which something is kept: 1 to 255 bytes, the name of one entry of a folder. It does not
/// begin with a dot or a hyphen, and has no `/` and no control characters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

impl Name {
    /// Checks a name.
    ///
    /// # Errors
    ///
    /// [`Error::Name`].
    pub fn new(text: &str) -> Result<Self> {
        let need = if text.is_empty() {
            "it is empty"
        } else if text.len() > 255 {
            "it is longer than 255 bytes"
        } else if text.contains('/') {
            "it has a /"
        } else if text.starts_with(['.', '-']) {
            "it begins with a dot or a hyphen"
        } else if text.chars().any(char::is_control) {
            "it has control characters"
        } else {
            return Ok(Self(text.to_owned()));
        };
        Err(Error::Name { name: text.to_owned(), what: need })
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<Path> for Name {
    fn as_ref(&self) -> &Path {
        Path::new(&self.0)
    }
}

/// Whether a path begins with `keep:`. A file whose own name begins so is written as `./keep:NAME`.
pub fn is_kept(path: &Path) -> bool {
    path.as_os_str().as_bytes().starts_with(PREFIX.as_bytes())
}

/// The parts of `keep:NAME` and `keep:NAME/PLACE`, the place in a kept folder; `None` for other paths.
pub(crate) fn parse(path: &Path) -> Option<Result<(Name, PathBuf)>> {
    let rest = path.as_os_str().as_bytes().strip_prefix(PREFIX.as_bytes())?;
    let end = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
    let (name, place) = rest.split_at(end);
    let place = Path::new(OsStr::from_bytes(place.strip_prefix(b"/").unwrap_or_default()));
    let inside = place.components().all(|part| matches!(part, Component::Normal(_)));
    Some(match std::str::from_utf8(name) {
        Ok(_) if !inside => Err(Error::Name {
            name: String::from_utf8_lossy(rest).into_owned(),
            what: "the place leads out of the kept folder",
        }),
        Ok(name) => Name::new(name).map(|name| (name, place.to_owned())),
        Err(_) => Err(Error::Name {
            name: String::from_utf8_lossy(name).into_owned(),
            what: "it is not UTF-8",
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_entries_of_one_folder() {
        let longest = "n".repeat(255);
        for good in ["a", "model.gguf", "llama 3", "ü", "a..b", "x=y", &longest] {
            assert_eq!(Name::new(good).expect("a name").as_str(), good);
        }
        let long = "n".repeat(256);
        for bad in ["", ".", "..", ".hidden", "-x", "a/b", "/", "../a", "a\0b", "a\nb", &long] {
            assert!(matches!(Name::new(bad), Err(Error::Name { .. })), "{bad:?}");
        }
    }

    #[test]
    fn paths_name_what_is_kept_and_a_place_in_it() {
        let parsed = |path: &str| {
            parse(Path::new(path)).map(|result| {
                result.map(|(name, place)| (name.to_string(), place.display().to_string()))
            })
        };
        let of = |name: &str, place: &str| (name.to_owned(), place.to_owned());
        assert_eq!(parsed("keep:a").expect("kept").expect("a name"), of("a", ""));
        assert_eq!(parsed("keep:a/").expect("kept").expect("a name"), of("a", ""));
        assert_eq!(parsed("keep:a/b/c").expect("kept").expect("a name"), of("a", "b/c"));
        for bad in ["keep:", "keep:/etc/passwd", "keep:..", "keep:a/../b", "keep:a//etc/passwd"] {
            assert!(parsed(bad).expect("kept").is_err(), "{bad}");
        }
        for other in ["./keep:a", "/keep:a", "a", "", "KEEP:a"] {
            assert!(parsed(other).is_none() && !is_kept(Path::new(other)), "{other}");
        }
    }
}
