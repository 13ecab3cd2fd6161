// SPDX-License-Identifier: MIT OR Apache-2.0
//! The NUMA nodes that memory is to be on.

use std::fmt;
use std::str::FromStr;

/// The NUMA nodes that the memory of a new buffer is to be on: `mbind(2)` and `set_mempolicy(2)`.
///
/// It holds for every page, whichever thread touches it first, and it holds for the memory: the policy of
/// the calling thread is the same afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(into = "Name"))]
pub enum Numa {
    /// The node of the processor that the calling thread runs on as the memory is created, and others where
    /// that has no memory left.
    Local,
    /// This node and no other.
    Node(u32),
    /// All nodes with memory that the process may use (its cpuset), in turn: page by page, or huge page by
    /// huge page. A dma-buf takes them in the pieces that the kernel allocates, of up to a few MiB. Others
    /// follow where a node has no memory left.
    Interleave,
}

/// A word, or the number of a node.
#[cfg(feature = "serde")]
#[derive(serde::Serialize)]
#[serde(untagged)]
enum Name {
    Word(&'static str),
    Node(u32),
}

#[cfg(feature = "serde")]
impl From<Numa> for Name {
    fn from(numa: Numa) -> Self {
        match numa {
            Numa::Local => Self::Word(LOCAL),
            Numa::Node(node) => Self::Node(node),
            Numa::Interleave => Self::Word(INTERLEAVE),
        }
    }
}

const LOCAL: &str = "local";
const INTERLEAVE: &str = "interleave";

/// The text that [`FromStr`] parses; also in JSON, where a node is a number.
impl fmt::Display for Numa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str(LOCAL),
            Self::Node(node) => write!(f, "{node}"),
            Self::Interleave => f.write_str(INTERLEAVE),
        }
    }
}

/// The text does not say where memory is to be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no numa {0:?}: choose \"local\", \"interleave\" or the number of a node")]
pub struct UnknownNuma(String);

impl FromStr for Numa {
    type Err = UnknownNuma;

    fn from_str(text: &str) -> Result<Self, UnknownNuma> {
        match text {
            LOCAL => Ok(Self::Local),
            INTERLEAVE => Ok(Self::Interleave),
            _ => text.parse().map(Self::Node).map_err(|_| UnknownNuma(text.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_numbers_are_parsed() {
        for (numa, text, json) in [
            (Numa::Local, "local", "\"local\""),
            (Numa::Interleave, "interleave", "\"interleave\""),
            (Numa::Node(7), "7", "7"),
        ] {
            assert_eq!((text.parse(), numa.to_string().as_str()), (Ok(numa), text));
            #[cfg(feature = "serde")]
            assert_eq!(serde_json::to_string(&numa).expect("JSON"), json);
            let _ = json;
        }
        for bad in ["", "-1", "node1", "4294967296", "Local"] {
            let error = bad.parse::<Numa>().expect_err(bad).to_string();
            assert!(error.contains("interleave"), "{error}");
        }
    }
}
