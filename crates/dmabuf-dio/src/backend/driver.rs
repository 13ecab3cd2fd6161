// SPDX-License-Identifier: MIT OR Apache-2.0
//! The interface of all backends.

use std::sync::Arc;

use super::Backend;
use crate::buffer::shared::Shared;
use crate::file::extent::Extent;
use crate::kind::Kind;
use crate::lend::Attached;
use crate::memory::Mapping;
use crate::refusal::attempt::Attempt;
use crate::transfer::task::{Fresh, Task, Transferred};

/// The operations of a backend. It refuses those for which [`Backend::for_new`] and the like do not
/// list it.
pub(crate) trait Driver: Sync {
    /// Loads into a new buffer of the given kind.
    fn load(&self, task: &Task<'_>, kind: Kind) -> Result<Fresh, Attempt> {
        let _ = task;
        Err(self.backend().refuse_new(kind).into())
    }

    /// Transfers between a file and a range of an existing buffer.
    fn transfer(
        &self,
        task: &Task<'_>,
        buf: &Shared,
        extent: Extent,
    ) -> Result<Transferred, Attempt> {
        let _ = extent;
        Err(self.backend().refuse_kind(buf.kind(), task.direction).into())
    }

    /// How the requests of a gather reach a buffer.
    fn reach(&self, buf: &Shared) -> Result<Reach, Attempt> {
        Err(self.backend().refuse_gathering(buf.kind()).into())
    }

    /// Tries the backend on a one-page buffer and says what it would do.
    fn try_out(&self) -> Result<String, Attempt>;

    /// The backend's name.
    fn backend(&self) -> Backend;
}

/// How requests reach a buffer.
#[derive(Debug)]
pub(crate) enum Reach {
    /// Through the module's ioctl, each in a blocking thread.
    Ioctl(Attached),
    /// Through `pread` on a mapping of it, in the same way.
    Calls(Arc<Mapping>),
    /// Through a ring that its pages are lent to.
    LentRing(Attached),
    /// Through a ring with its mapping.
    MappedRing(Arc<Mapping>),
}
