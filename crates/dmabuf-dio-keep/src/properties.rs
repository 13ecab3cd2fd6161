// SPDX-License-Identifier: MIT OR Apache-2.0
//! What others send or type: headers of packets, and paths of what is kept.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path};

use dmabuf_dio::Kind;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::drawn::{holds, one_of};
use crate::name::parse;
use crate::packet::{Header, Held};

#[cfg_attr(test, test)]
pub(crate) fn headers_are_read_as_they_were_written() {
    let held = (vec(any::<char>(), 0..20), any::<u64>(), any::<bool>());
    let draws = (vec(any::<char>(), 0..20), any::<bool>(), vec(held, 0..10));
    let changes = vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    holds(&(draws, changes), |((name, is_folder, files), changes)| {
        let files = files.into_iter().map(|(place, length, is_memfd)| {
            let kind = if is_memfd { Kind::Memfd } else { Kind::DmaBuf };
            Held::new(place.into_iter().collect::<String>().into(), length, kind)
        });
        let name: String = name.into_iter().collect();
        let header = Header::new(&name, is_folder, files.collect());
        let mut text = header.text().expect("a text");
        assert_eq!(serde_json::from_slice::<Header>(&text).expect("a header"), header);
        // Another text is another header, or none: it is read without a panic.
        for (at, byte) in changes {
            let at = at.index(text.len());
            text[at] = byte;
        }
        if let Ok(other) = serde_json::from_slice::<Header>(&text) {
            assert!(other.files.len() <= header.files.len());
        }
    });
}

#[cfg_attr(test, test)]
pub(crate) fn kept_paths_never_lead_out_of_their_folder() {
    let known =
        ["a", "b", "/", "/..", "..", ".", "-", "\0", "\n"].map(|part| part.as_bytes().to_vec());
    let part = one_of![
        8 => prop::sample::select(known.to_vec()),
        1 => vec(any::<u8>(), 1..3),
    ];
    holds(&vec(part, 0..8), |rest| {
        let mut path = b"keep:".to_vec();
        path.extend(rest.concat());
        let parsed = parse(Path::new(OsStr::from_bytes(&path))).expect("kept");
        let Ok((name, place)) = parsed else { return };
        let name = name.as_str();
        assert!(!name.is_empty() && !name.contains(['/', '\0', '\n']) && !name.starts_with('.'));
        assert!(place.components().all(|part| matches!(part, Component::Normal(_))), "{place:?}");
        let text = [b"keep:", name.as_bytes()].concat();
        assert!(path.starts_with(&text), "{name}");
        assert!(Path::new("/folder").join(name).join(&place).starts_with("/folder"), "{place:?}");
    });
}
