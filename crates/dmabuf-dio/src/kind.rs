// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kinds of buffers.

use std::fmt;
use std::str::FromStr;

/// The kind of a buffer, or of a buffer to create.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "lowercase"))]
pub enum Kind {
    /// A dma-buf: devices can import it.
    DmaBuf,
    /// A memfd, or an unnamed file on a tmpfs: processes can share it.
    Memfd,
    /// A memfd that holds the content and nothing else, so that programs can open it by path, and a
    /// dma-buf over its pages if `/dev/udmabuf` allows that.
    File,
    /// Memory of this process only. On most systems it is allocated in huge pages. The pages of a
    /// memfd have to be collapsed into huge pages, which costs more.
    Private,
    /// Only as what a load is to create: a dma-buf if one can be had, else a memfd. No buffer is of
    /// this kind.
    #[default]
    Any,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::DmaBuf, Self::Memfd, Self::File, Self::Private, Self::Any];

    /// The name that [`FromStr`] parses; also in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DmaBuf => "dmabuf",
            Self::Memfd => "memfd",
            Self::File => "file",
            Self::Private => "private",
            Self::Any => "any",
        }
    }
}

/// For sentences: "a " and this.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DmaBuf => "dma-buf",
            Self::Memfd => "memfd",
            Self::File => "file in memory",
            Self::Private => "piece of private memory",
            Self::Any => "buffer",
        })
    }
}

/// The text is not the name of a kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no kind {0:?}: choose \"dmabuf\", \"memfd\", \"file\", \"private\" or \"any\"")]
pub struct UnknownKind(String);

impl FromStr for Kind {
    type Err = UnknownKind;

    fn from_str(text: &str) -> Result<Self, UnknownKind> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == text);
        found.ok_or_else(|| UnknownKind(text.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_and_listed_in_the_error() {
        for kind in Kind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
            #[cfg(feature = "serde")]
            assert_eq!(serde_json::to_string(&kind).expect("JSON"), format!("\"{}\"", kind.name()));
        }
        let error = "dma-buf".parse::<Kind>().expect_err("no kind").to_string();
        assert!(Kind::ALL.iter().all(|kind| error.contains(kind.name())), "{error}");
    }
}
