// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the targets of the fuzzer call: tests/fuzz/library. Each panics if a promise is broken.

use std::path::{Component, Path};

use crate::index::Index;
use crate::mistaken::Mistaken;
use crate::split_name::SplitName;

/// Any bytes as the index of a model in several files.
pub fn indexes(bytes: &[u8]) {
    let Ok(index) = Index::parse(bytes) else { return };
    let names = index.tensors.iter().map(|(name, _)| name);
    assert!(names.clone().zip(names.skip(1)).all(|(one, next)| one < next), "sorted, each once");
    for file in &index.files {
        let leads_out = |part| !matches!(part, Component::Normal(_) | Component::CurDir);
        assert!(!Path::new(file).components().any(leads_out), "{file:?}");
        let path = Path::new("/models/one").join(file);
        assert!(path.starts_with("/models/one") && path != Path::new("/models/one"), "{file:?}");
    }
    for (name, file) in &index.tensors {
        assert!(*file < index.files.len());
        assert_eq!(index.file_of(name), Some(*file), "{name}");
    }
}

/// Any bytes as a file that is no model, and as the name of a part of one.
pub fn mistakes(bytes: &[u8]) {
    for len in [bytes.len() as u64, u64::MAX] {
        if let Some(mistaken) = Mistaken::of(bytes, len) {
            assert!(!mistaken.to_string().is_empty() && !mistaken.hint().is_empty());
        }
    }
    let Ok(name) = std::str::from_utf8(bytes) else { return };
    for split in [SplitName::of_gguf(name), SplitName::of_safetensors(name)].into_iter().flatten() {
        assert!((1..=split.count).contains(&split.number), "{split:?}");
        assert_eq!(split.name(split.number), name);
        let last = split.name(split.count);
        let again = SplitName::of_gguf(&last).or_else(|| SplitName::of_safetensors(&last));
        assert!(again.is_some_and(|other| other.number == split.count), "{last} of {name}");
    }
}

/// Parts of tensors, the reads for them, and saved ones.
#[cfg(fuzzed)]
pub fn parts(bytes: &[u8]) {
    use crate::properties::*;
    crate::drawn::with(bytes, || {
        parts_have_the_bytes_of_their_elements();
        runs_have_every_tensor_and_no_wide_gap();
        saved_parts_are_the_header_and_the_tensors_in_order();
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kept_inputs::try_all;

    #[test]
    fn kept_indexes_keep_their_promises() {
        try_all("indexes", indexes);
    }

    #[test]
    fn kept_mistakes_keep_their_promises() {
        try_all("mistakes", mistakes);
    }
}
