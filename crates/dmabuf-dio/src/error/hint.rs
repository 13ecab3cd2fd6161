// SPDX-License-Identifier: MIT OR Apache-2.0
//! Remedies for errors. They are typed, because each face (Rust, C, Python, the command) uses the
//! names of its own calls and settings.

use std::borrow::Cow;
use std::fmt;

use crate::kind::Kind;

/// A remedy for an error. `Display` is one line with the names of this crate;
/// [`in_words`](Self::in_words) uses the names of another face.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hint {
    /// A step that is the same at every face: a command, a limit, a permission, a file.
    Step(Cow<'static, str>),
    /// Allow any kind of buffer.
    AnyKind {
        /// The requested kind, and a way to make it available.
        or: Option<(Kind, String)>,
    },
    /// Load as another kind, one that has a descriptor.
    WithDescriptor,
    /// Load as a dma-buf, or as a file with one over its pages.
    WithDmaBuf,
    /// Let any backend be used.
    AnyBackend,
    /// Load in ranges. The text is another remedy, which comes first.
    Ranges(&'static str),
    /// Load in ranges, or lower what the kernel module leaves to others.
    RangesOrReserve,
    /// Request less in all, or at a time.
    SmallerRequests,
    /// Give a setting another value.
    Setting {
        /// The field of [`Options`](crate::Options), or the method that sets it.
        name: &'static str,
        /// The valid values.
        need: &'static str,
    },
    /// Choose other nodes of memory: these have some.
    Nodes(Vec<u32>),
    /// Choose other nodes of memory, or load in ranges.
    NodesOrRanges,
    /// Give a gather more spare bytes: as many as its `room` says.
    SpareBytes,
    /// List the names of a model's tensors.
    TensorNames,
}

/// How a face spells what hints name.
#[derive(Clone, Copy, Debug)]
pub struct Words {
    /// A value of the setting `kind`.
    pub kind: fn(Kind) -> String,
    /// A setting, from its name in [`Options`](crate::Options).
    pub setting: fn(&str) -> String,
    /// The call that says how many spare bytes pieces need.
    pub room: &'static str,
    /// The call that lists the tensors of a model.
    pub tensors: &'static str,
}

impl Words {
    /// The names of this crate.
    pub const RUST: Self = Self {
        kind: |kind| format!("Kind::{kind:?}"),
        setting: str::to_owned,
        room: "Gatherer::room",
        tensors: "Model::tensors",
    };
}

impl Hint {
    /// The hint as one line in the words of a face.
    pub fn in_words(&self, words: &Words) -> String {
        let (kind, set) = (words.kind, words.setting);
        let ranges =
            || format!("load the file in ranges ({} and {})", set("offset"), set("length"));
        let any_kind = || format!("allow any kind of buffer: {}, the default", kind(Kind::Any));
        match self {
            Self::Step(text) => text.to_string(),
            Self::AnyKind { or: None } => any_kind(),
            Self::AnyKind { or: Some((wanted, remedy)) } => {
                format!("{}; or for a {wanted}: {remedy}", any_kind())
            }
            Self::WithDescriptor => {
                format!("load it as another kind, such as a memfd: {}", kind(Kind::Memfd))
            }
            Self::WithDmaBuf => format!(
                "load it as a dma-buf ({}), or as a file ({}), which has a dma-buf over its pages where \
                 /dev/udmabuf allows that",
                kind(Kind::DmaBuf),
                kind(Kind::File)
            ),
            Self::AnyBackend => {
                format!("choose another {}, or let the library choose", set("backend"))
            }
            Self::Ranges(first) => format!("{first}, or {}", ranges()),
            Self::RangesOrReserve => {
                format!("free memory, {}, or lower the parameter reserve of dmabuf_dio", ranges())
            }
            Self::SmallerRequests => {
                format!(
                    "free memory, or choose a smaller {} or {}",
                    set("block_size"),
                    set("queue_depth")
                )
            }
            Self::Setting { name, need } => format!("choose another {}: {need}", set(name)),
            Self::Nodes(nodes) => {
                let nodes: Vec<_> = nodes.iter().map(u32::to_string).collect();
                format!("choose another {}: one of the nodes {}", set("numa"), nodes.join(", "))
            }
            Self::NodesOrRanges => {
                format!("choose another {}, free memory on the node, or {}", set("numa"), ranges())
            }
            Self::SpareBytes => format!(
                "set more spare bytes, or align the piece: {} returns how many it needs",
                words.room
            ),
            Self::TensorNames => format!("list the names: {}", words.tensors),
        }
    }
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.in_words(&Words::RUST))
    }
}

impl From<&'static str> for Hint {
    fn from(step: &'static str) -> Self {
        Self::Step(step.into())
    }
}

impl From<String> for Hint {
    fn from(step: String) -> Self {
        Self::Step(step.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_name_settings_in_the_words_of_a_face() {
        let command = Words {
            kind: |kind| format!("--kind {}", kind.name()),
            setting: |name| format!("--{}", name.replace('_', "-")),
            ..Words::RUST
        };
        let or = Some((Kind::DmaBuf, "modprobe udmabuf".to_owned()));
        for (hint, rust, in_command) in [
            (
                Hint::AnyKind { or },
                "Kind::Any",
                "--kind any, the default; or for a dma-buf: modprobe udmabuf",
            ),
            (Hint::WithDescriptor, "Kind::Memfd", "--kind memfd"),
            (Hint::WithDmaBuf, "(Kind::DmaBuf)", "(--kind dmabuf)"),
            (Hint::AnyBackend, "another backend", "another --backend"),
            (Hint::Ranges("free memory"), "(offset and length)", "(--offset and --length)"),
            (Hint::RangesOrReserve, "(offset and length)", "(--offset and --length)"),
            (Hint::SmallerRequests, "block_size or queue_depth", "--block-size or --queue-depth"),
            (
                Hint::Setting { name: "queue_depth", need: "1" },
                "another queue_depth: 1",
                "another --queue-depth: 1",
            ),
            (Hint::Nodes(vec![0, 2]), "another numa: one of the nodes 0, 2", "another --numa: one"),
            (Hint::NodesOrRanges, "another numa, free memory", "another --numa, free memory"),
            (Hint::SpareBytes, "Gatherer::room", "Gatherer::room"),
            (Hint::TensorNames, "Model::tensors", "Model::tensors"),
            ("do this".into(), "do this", "do this"),
        ] {
            assert!(hint.to_string().contains(rust), "{hint}");
            let said = hint.in_words(&command);
            assert!(said.contains(in_command) && !said.contains('\n'), "{said}");
        }
    }
}
