// SPDX-License-Identifier: MIT OR Apache-2.0
//! The backends, one file each, and why one is not available.

pub(crate) mod driver;

pub(crate) mod buffered;
pub(crate) mod copy_file_range;
pub(crate) mod heap;
pub(crate) mod memfd;
pub(crate) mod module;
pub(crate) mod slot;
pub(crate) mod udmabuf;

use std::fmt;
use std::str::FromStr;

use crate::direction::Direction;
use crate::errno::{Errno, IntoErrno};
use crate::kind::Kind;
use crate::lend::error::NotLent;

/// A method of moving data between a file and a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum Backend {
    /// The kernel module's ioctls. A load into a new buffer allocates memory without zeroing it
    /// first, and reads while the rest is still being allocated.
    Module,
    /// The dma-buf's pages as `io_uring` registered buffers, lent by the kernel module (Linux 7.3).
    #[cfg_attr(feature = "serde", serde(rename = "slot"))]
    UringSlot,
    /// The system heap reads the file while it allocates the buffer, in one call. Only for new
    /// buffers, on a kernel with the patch series.
    Heap,
    /// `copy_file_range(2)` between the file and a dma-buf, on a kernel with the patch series.
    #[cfg_attr(feature = "serde", serde(rename = "copy_file_range"))]
    CopyFileRange,
    /// Like [`Memfd`](Self::Memfd), followed by a dma-buf over its pages from `/dev/udmabuf`.
    Udmabuf,
    /// A memfd, filled by `io_uring` with `O_DIRECT`: directly if it gets huge pages, else through
    /// a staging buffer from which the CPU copies.
    Memfd,
    /// `pread` and `pwrite` on a mapping of the buffer, through the page cache.
    ///
    /// On an existing udmabuf this depends on the kernel: without the fix in kernel/series, Linux
    /// does not synchronise the devices that have the udmabuf attached. Devices that are not
    /// coherent, or behind bounce buffers, may not see loaded data, and data they wrote may not be
    /// saved. This library cannot tell whether there is such a device, so the report has a note.
    /// ([`Module`](Self::Module) can tell, and refuses.)
    Buffered,
}

impl Backend {
    /// All backends.
    pub const ALL: [Self; 7] = [
        Self::Module,
        Self::UringSlot,
        Self::Heap,
        Self::CopyFileRange,
        Self::Udmabuf,
        Self::Memfd,
        Self::Buffered,
    ];

    /// The name that [`FromStr`] parses and [`Display`](fmt::Display) prints.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Module => "module",
            Self::UringSlot => "slot",
            Self::Heap => "heap",
            Self::CopyFileRange => "copy_file_range",
            Self::Udmabuf => "udmabuf",
            Self::Memfd => "memfd",
            Self::Buffered => "buffered",
        }
    }

    /// A short description for users.
    pub const fn summary(self) -> &'static str {
        match self {
            Self::Module => "The kernel module's ioctls",
            Self::UringSlot => "The dma-buf's pages as io_uring fixed buffers, lent by the module",
            Self::Heap => "The system heap reads the file while it allocates (patch series)",
            Self::CopyFileRange => "copy_file_range(2) with a dma-buf (patch series)",
            Self::Udmabuf => "A memfd, and a dma-buf created from it",
            Self::Memfd => "A memfd, filled by io_uring",
            Self::Buffered => "pread and pwrite, through the page cache",
        }
    }

    /// The backends that can load into a new buffer of `kind`, in the order in which they are
    /// tried. None is needed for private memory.
    pub const fn for_new(kind: Kind) -> &'static [Self] {
        match kind {
            Kind::DmaBuf => &[
                Self::Module,
                Self::UringSlot,
                Self::Heap,
                Self::CopyFileRange,
                Self::Udmabuf,
                Self::Buffered,
            ],
            Kind::Memfd | Kind::File => &[Self::Memfd, Self::Buffered],
            Kind::Private => &[],
            Kind::Any => &Self::ALL,
        }
    }

    /// The backends that can transfer between a file and an existing buffer of `kind`, in the order
    /// in which they are tried.
    pub const fn for_existing(kind: Kind) -> &'static [Self] {
        match kind {
            Kind::DmaBuf => &[Self::Module, Self::UringSlot, Self::CopyFileRange, Self::Buffered],
            Kind::Memfd | Kind::File => &[Self::Memfd, Self::Buffered],
            Kind::Private | Kind::Any => &[],
        }
    }

    /// The backends that can gather pieces of a file into an existing buffer of `kind`, in the
    /// order in which they are tried.
    pub const fn for_gathering(kind: Kind) -> &'static [Self] {
        match kind {
            Kind::DmaBuf => &[Self::UringSlot, Self::Module, Self::Buffered],
            Kind::Memfd | Kind::File => &[Self::Memfd, Self::Buffered],
            Kind::Private | Kind::Any => &[],
        }
    }

    pub(crate) fn refuse(self, reason: impl Into<String>) -> Refusal {
        Refusal { backend: self, reason: reason.into(), errno: None, remedy: None, not_lent: None }
    }

    pub(crate) fn refuse_new(self, kind: Kind) -> Refusal {
        self.refuse(format!("it cannot create a {kind}")).remedy(use_one_of(Self::for_new(kind)))
    }

    pub(crate) fn refuse_kind(self, kind: Kind, direction: Direction) -> Refusal {
        let verb = match direction {
            Direction::Load => "load into",
            Direction::Save => "save from",
        };
        self.refuse(format!("it cannot {verb} an existing {kind}"))
            .remedy(use_one_of(Self::for_existing(kind)))
    }

    /// Bytes that are in no buffer are saved without a backend.
    pub(crate) fn refuse_reader(self) -> Refusal {
        self.refuse("it saves from buffers only").remedy("leave the backend out")
    }

    pub(crate) fn refuse_gathering(self, kind: Kind) -> Refusal {
        self.refuse(format!("it cannot gather into a {kind}"))
            .remedy(use_one_of(Self::for_gathering(kind)))
    }
}

fn use_one_of(backends: &[Backend]) -> String {
    let names: Vec<_> = backends.iter().map(|backend| backend.name()).collect();
    format!("use one of: {}", names.join(", "))
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The text is not the name of a backend.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no backend {0:?}: the backends are {names}", names = names())]
pub struct UnknownBackend(String);

/// The names of all backends, as a list in a sentence.
fn names() -> String {
    let names = Backend::ALL.map(Backend::name);
    let [most @ .., last] = &names;
    format!("{} and {last}", most.join(", "))
}

impl FromStr for Backend {
    type Err = UnknownBackend;

    fn from_str(text: &str) -> Result<Self, UnknownBackend> {
        Self::ALL
            .into_iter()
            .find(|backend| backend.name() == text)
            .ok_or_else(|| UnknownBackend(text.into()))
    }
}

/// Why a backend is not available.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Refusal {
    /// The backend.
    pub backend: Backend,
    /// The reason: what is missing.
    pub reason: String,
    /// The error number that led to the refusal, if there is one.
    pub errno: Option<Errno>,
    /// How to make the backend available, as a command if possible.
    pub remedy: Option<String>,
    /// For the backends of the kernel module: why it does not borrow the pages of this buffer, if
    /// that is the reason.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub not_lent: Option<NotLent>,
}

impl Refusal {
    /// Whether the buffer's memory is unusable, so that no backend helps.
    pub(crate) fn is_of_the_memory(&self) -> bool {
        self.not_lent.is_some_and(NotLent::is_of_the_memory)
    }

    pub(crate) fn errno(mut self, errno: impl IntoErrno) -> Self {
        self.errno = Some(errno.into_errno());
        self
    }

    pub(crate) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.backend, self.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(feature = "serde")]
    fn refusal_of_a_buffer_serializes_its_cause() {
        let refusal = Backend::Module.refuse("why").remedy("what");
        let json = |refusal: &Refusal| serde_json::to_string(refusal).expect("JSON");
        let plain = r#"{"backend":"module","reason":"why","errno":null,"remedy":"what"}"#;
        assert_eq!(json(&refusal), plain);
        let refusal = Refusal { not_lent: Some(NotLent::Exporter), ..refusal };
        assert!(json(&refusal).ends_with(r#""not_lent":"exporter"}"#), "{}", json(&refusal));
    }

    #[test]
    fn names_round_trip() {
        for backend in Backend::ALL {
            assert_eq!(backend.name().parse(), Ok(backend));
            #[cfg(feature = "serde")]
            assert_eq!(
                serde_json::to_string(&backend).expect("JSON"),
                format!("\"{}\"", backend.name())
            );
        }
        let error = "direct".parse::<Backend>().expect_err("no backend").to_string();
        assert!(error.contains("\"direct\""), "{error}");
        for backend in Backend::ALL {
            assert!(error.contains(backend.name()), "{error}");
        }
        assert!(error.ends_with("memfd and buffered"), "{error}");
    }
}
