// SPDX-License-Identifier: MIT OR Apache-2.0
//! The index of a sharded safetensors model: which tensor is in which file.

use std::collections::HashMap;
use std::fmt;
use std::path::{Component, Path};

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};

use crate::header::MAX_TENSORS;
use crate::malformed::{Malformed, short};

/// The longest index.
pub(crate) const MAX_INDEX: u64 = 100_000_000;
/// Most files of a model.
pub(crate) const MAX_FILES: u64 = 4096;

/// A parsed index.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// The files, relative to the index's folder, in order of their first tensor.
    pub(crate) files: Vec<String>,
    /// The tensors, sorted by name, each with its file.
    pub(crate) tensors: Vec<(String, usize)>,
}

impl Index {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let text = std::str::from_utf8(bytes)
            .map_err(|error| Malformed::Utf8 { at: error.valid_up_to() as u64 })?;
        let mut state = State::default();
        let mut json = serde_json::Deserializer::from_str(text);
        let result = Top(&mut state).deserialize(&mut json).and_then(|()| json.end());
        if let Some(problem) = state.problem {
            return Err(problem);
        }
        result.map_err(|error| Malformed::Json { message: short(&error.to_string()) })?;
        let mut index = state.index.ok_or(Malformed::NoWeightMap)?;
        index.tensors.sort_unstable();
        match index.tensors.windows(2).find(|two| two[0].0 == two[1].0) {
            Some(two) => Err(Malformed::Duplicate { what: "tensor", name: short(&two[0].0) }),
            None => Ok(index),
        }
    }

    /// The file of a tensor.
    pub(crate) fn file_of(&self, name: &str) -> Option<usize> {
        let found = self.tensors.binary_search_by(|(one, _)| one.as_str().cmp(name)).ok()?;
        Some(self.tensors[found].1)
    }
}

/// Whether a path of an index stays in the index's folder.
fn is_inside(name: &str) -> bool {
    let path = Path::new(name);
    !name.contains('\0')
        && path.file_name().is_some()
        && path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}

#[derive(Default)]
struct State {
    index: Option<Index>,
    /// The reason of a failure, which serde's error cannot carry.
    problem: Option<Malformed>,
}

impl State {
    fn fail<E: serde::de::Error>(&mut self, problem: Malformed) -> E {
        self.problem = Some(problem);
        E::custom("index")
    }
}

/// The object at the top.
struct Top<'s>(&'s mut State);

impl<'de> DeserializeSeed<'de> for Top<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Top<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with a weight_map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            if key != "weight_map" {
                map.next_value::<IgnoredAny>()?;
            } else if self.0.index.is_some() {
                return Err(self.0.fail(Malformed::Duplicate { what: "key", name: key }));
            } else {
                map.next_value_seed(Weights(self.0))?;
            }
        }
        Ok(())
    }
}

/// The object `weight_map`.
struct Weights<'s>(&'s mut State);

impl<'de> DeserializeSeed<'de> for Weights<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Weights<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors and their files")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let state = self.0;
        let mut index = Index::default();
        let mut numbers = HashMap::<String, usize>::new();
        while let Some((tensor, file)) = map.next_entry::<String, String>()? {
            if index.tensors.len() as u64 >= MAX_TENSORS {
                return Err(state.fail(too_many("tensors:", MAX_TENSORS)));
            }
            let number = if let Some(number) = numbers.get(&file) {
                *number
            } else {
                if !is_inside(&file) {
                    return Err(state.fail(Malformed::Outside { name: short(&file) }));
                }
                if numbers.len() as u64 >= MAX_FILES {
                    return Err(state.fail(too_many("files:", MAX_FILES)));
                }
                let number = numbers.len();
                index.files.push(file.clone());
                numbers.insert(file, number);
                number
            };
            index.tensors.push((tensor, number));
        }
        state.index = Some(index);
        Ok(())
    }
}

fn too_many(what: &'static str, limit: u64) -> Malformed {
    Malformed::TooLarge { what, value: limit + 1, limit }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_maps_tensors_to_files() {
        let json = br#"{"metadata": {"total_size": 7, "x": [[{}]]},
            "weight_map": {"b": "2.safetensors", "a": "sub/1.safetensors", "c": "2.safetensors"}}"#;
        let index = Index::parse(json).expect("an index");
        assert_eq!(index.files, ["2.safetensors", "sub/1.safetensors"]);
        assert_eq!(index.file_of("c"), Some(0));
        assert_eq!(index.file_of("a"), Some(1));
        assert_eq!(index.file_of("d"), None);
    }

    #[test]
    fn index_files_outside_the_folder_are_refused() {
        for name in ["a", "a/b", "./a", "a/./b", "..a", "a..b/c.."] {
            assert!(is_inside(name), "{name}");
        }
        for name in ["", ".", "..", "/a", "../a", "a/../b", "a/..", "a\0", "/"] {
            assert!(!is_inside(name), "{name:?}");
        }
    }
}
