// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the targets of the fuzzer call: tests/fuzz/library. Each panics if a promise is broken.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path};

use crate::hold::generation_of;
use crate::name::{self, Name};
use crate::packet::Header;
use crate::readers::{all_read, kept};
use crate::record::Record;

/// Any bytes as what a holder sends.
pub fn packets(bytes: &[u8]) {
    let Ok(header) = serde_json::from_slice::<Header>(bytes) else { return };
    let count = header.files.len();
    assert!(Header::parse(bytes, count + 1).is_err());
    let Ok(header) = Header::parse(bytes, count) else { return };
    // What is written with fewer letters is read as it was.
    if let Ok(text) = header.text() {
        assert_eq!(Header::parse(&text, count), Ok(header));
    }
}

/// Any bytes as what is written beside a kept file: by whoever may write into the folder.
pub fn records(bytes: &[u8]) {
    let Some(record) = Record::parse(bytes) else { return };
    let name = Path::new(&record.name);
    assert!(matches!(name.components().next(), Some(Component::Normal(_))), "{}", name.display());
    assert!(name.components().count() == 1 && Path::new("/a").join(name).starts_with("/a"));
    let text = serde_json::to_vec(&record).expect("a text");
    let again = Record::parse(&text).expect("a record");
    assert_eq!(serde_json::to_vec(&again).expect("a text"), text);
}

/// Any bytes as a path, the name of a stored descriptor, and a list of who may read.
pub fn paths(bytes: &[u8]) {
    let path = Path::new(OsStr::from_bytes(bytes));
    let parsed = name::parse(path);
    assert_eq!(parsed.is_some(), name::is_kept(path));
    if let Some(Ok((name, place))) = parsed {
        assert_eq!(Name::new(name.as_str()).expect("a name"), name);
        let part = Path::new(name.as_str()).components().next();
        assert!(matches!(part, Some(Component::Normal(_))), "{name}");
        assert!(
            place.components().all(|part| matches!(part, Component::Normal(_))),
            "{}",
            place.display()
        );
        let folder = Path::new("/kept").join(&name);
        assert!(
            folder.parent() == Some(Path::new("/kept")) && folder.join(place).starts_with(folder)
        );
    }
    if let Some(generation) = std::str::from_utf8(bytes).ok().and_then(generation_of) {
        assert!(path.to_string_lossy().contains(&generation.to_string()));
    }
    let _ = all_read(bytes);
    for mode in bytes.iter().map(|byte| 0o777 & u32::from(*byte) << 1) {
        for same in [true, false] {
            let given = kept(mode, same);
            // Nobody may write, and nobody reads who could not, but for the owner.
            assert!(given & 0o222 == 0 && given & 0o044 & !mode == 0, "{mode:o} {given:o}");
        }
    }
}

/// Headers of packets that were changed, and paths that lead elsewhere.
#[cfg(fuzzed)]
pub fn changed(bytes: &[u8]) {
    use crate::properties::*;
    crate::drawn::with(bytes, || {
        headers_are_read_as_they_were_written();
        kept_paths_never_lead_out_of_their_folder();
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kept_inputs::try_all;

    #[test]
    fn kept_packets_keep_their_promises() {
        try_all("packets", packets);
    }

    #[test]
    fn kept_records_keep_their_promises() {
        try_all("records", records);
    }

    #[test]
    fn kept_paths_keep_their_promises() {
        try_all("paths", paths);
    }
}
