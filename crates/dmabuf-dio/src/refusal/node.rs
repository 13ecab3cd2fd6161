// SPDX-License-Identifier: MIT OR Apache-2.0
//! Device nodes that backends need, and why one cannot be opened.

use crate::backend::{Backend, Refusal};
use crate::errno::IntoErrno;

/// A device node.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) path: &'static str,
    /// The required permissions, in setfacl(1) syntax.
    pub(crate) access: &'static str,
    /// Text appended to the path if the node is missing.
    pub(crate) missing: &'static str,
    /// How to create the node.
    pub(crate) remedy: &'static str,
}

impl Node {
    /// Why `backend` cannot open the node: it is missing, or access is denied.
    pub(crate) fn refuse(&self, backend: Backend, errno: impl IntoErrno) -> Refusal {
        let errno = errno.into_errno();
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
