// SPDX-License-Identifier: MIT OR Apache-2.0
//! Device nodes that backends need, and why one cannot be opened.

use super::{Backend, Refusal};
use crate::errno::Errno;

/// A device node.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) path: &'static str,
    /// Permissions that are needed, as setfacl(1) takes them.
    pub(crate) access: &'static str,
    /// What it means that the node is missing, after its path.
    pub(crate) missing: &'static str,
    /// What brings it about.
    pub(crate) remedy: &'static str,
}

impl Node {
    /// Why `backend` cannot open it: it is missing, or it is forbidden.
    pub(crate) fn refuse(&self, backend: Backend, errno: impl Into<Errno>) -> Refusal {
        let errno = errno.into();
        let refusal = match errno.raw() {
            libc::ENOENT | libc::ENODEV | libc::ENXIO => backend
                .refuse(format!("there is no {}{}", self.path, self.missing))
                .remedy(self.remedy),
            _ => backend.refuse(format!("{} cannot be opened", self.path)).remedy(format!(
                "run as root, or: sudo setfacl -m u:$USER:{} {}",
                self.access, self.path
            )),
        };
        refusal.errno(errno)
    }
}
