// SPDX-License-Identifier: MIT OR Apache-2.0
//! The names of descriptions, and the names of files in them: SigMF's own keys and ours.

use std::fs;
use std::path::{Path, PathBuf};

use dmabuf_dio_terminal::exit::{Failure, USAGE};
use serde_json::{Value, json};

pub(crate) const DATA: &str = "sigmf-data";
pub(crate) const META: &str = "sigmf-meta";
/// The formats of a frame's values, if SigMF's type does not describe them completely:
/// `le:s12/16>>0`.
pub(crate) const FORMATS: &str = "dmabuf_dio:formats";
/// The capture has not ended, or was killed: losses are described up to this frame.
pub(crate) const UNFINISHED: &str = "dmabuf_dio:unfinished";
/// Path of the description of a file.
pub(crate) fn path_of(data: &Path) -> PathBuf {
    data.with_extension(META)
}

/// Whether a file is a description, not samples.
pub(crate) fn is_description(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == META)
}

/// The content of a description. A byte order mark is not a part of it.
pub(crate) fn parse(bytes: &[u8]) -> Result<Value, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| format!("it is not UTF-8: {error}"))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim().is_empty() {
        return Err("it is empty".into());
    }
    let value: Value =
        serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?;
    if !value["global"].is_object() {
        return Err("it has no object \"global\"".into());
    }
    Ok(value)
}

/// The file that the description beside `data` describes; `None` if its name is not a string.
pub(crate) fn described(data: &Path, value: &Value) -> Option<PathBuf> {
    match &value["global"]["core:dataset"] {
        Value::Null => {
            let other = data.with_extension(DATA);
            Some(if other.exists() { other } else { data.to_owned() })
        }
        name => Some(data.with_file_name(name.as_str()?)),
    }
}

/// Fails if the description of this name describes another file of samples: it would be overwritten.
pub(crate) fn refuse_other(data: &Path) -> Result<(), Failure> {
    let path = path_of(data);
    let Ok(Ok(value)) = fs::read(&path).map(|bytes| parse(&bytes)) else {
        return Ok(());
    };
    let Some(other) = described(data, &value).filter(|other| other != data && other.exists())
    else {
        return Ok(());
    };
    let what = format!("{} describes another file, {}", path.display(), other.display());
    Err(Failure::new(USAGE, what, "choose a name that differs in more than what follows the dot"))
}

/// The key with the name of a file of samples, if SigMF readers cannot derive it from the
/// description's name.
pub(crate) fn dataset(data: &Path) -> Option<Value> {
    let other = data.extension().is_none_or(|extension| extension != DATA);
    other.then(|| json!(data.file_name().unwrap_or_default().to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreadable_description_is_reported() {
        let good = br#"{"global": {"core:datatype": "ri16_le"}}"#;
        assert!(parse(good).is_ok() && parse(&[b"\xef\xbb\xbf", &good[..]].concat()).is_ok());
        for (bad, why) in [
            (&b""[..], "empty"),
            (b" \n", "empty"),
            (br#"{"global": {"core:datatype": "ri16_le"},}"#, "trailing comma"),
            (&good[..20], "EOF"),
            (b"{\"global\": {\"core:author\": \"J\xfcrgen\"}}", "not UTF-8"),
            (b"[]", "no object"),
            (b"{}", "no object"),
        ] {
            let said = parse(bad).expect_err("bad");
            assert!(said.contains(why), "{said}");
        }
    }
}
