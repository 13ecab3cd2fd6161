// SPDX-License-Identifier: MIT OR Apache-2.0
//! Device nodes that backends need, and why one cannot be opened.

use std::path::Path;

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
            libc::ENOENT if self.has_device("/sys/class".as_ref()) => backend
                .refuse(format!("there is no {}, although the kernel has the device", self.path))
                .remedy(format!("start the container with --device {}", self.path)),
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

    /// Whether the kernel has the device, by its classes: a container sees all devices there, and has only the nodes
    /// that it is given.
    fn has_device(&self, classes: &Path) -> bool {
        let name = Path::new(self.path).file_name().unwrap_or_default();
        ["misc", "dma_heap"].iter().any(|class| classes.join(class).join(name).exists())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errno::Errno;

    #[test]
    fn device_is_found_in_its_class() {
        let classes = tempfile::tempdir().expect("a folder");
        let node = |path| Node { path, access: "rw", missing: "", remedy: "" };
        std::fs::create_dir_all(classes.path().join("misc/udmabuf")).expect("a folder");
        std::fs::create_dir_all(classes.path().join("dma_heap/system")).expect("a folder");
        for (path, has) in [
            ("/dev/udmabuf", true),
            ("/dev/dma_heap/system", true),
            ("/dev/dmabuf_dio", false),
            ("/dev/misc", false),
        ] {
            assert_eq!(node(path).has_device(classes.path()), has, "{path}");
        }
    }

    #[test]
    fn only_a_missing_node_of_a_device_needs_the_container() {
        let entries = std::fs::read_dir("/sys/class/misc").into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let paths = names.map(|name| format!("/nowhere/{name}").leak() as &str);
        for path in paths.chain(["/nowhere/at_all"]) {
            let node = Node { path, access: "rw", missing: ": load it", remedy: "load it" };
            let said = |errno| {
                let refusal = node.refuse(Backend::Module, Errno::from_raw(errno));
                format!("{refusal} {:?}", refusal.remedy)
            };
            assert_eq!(
                said(libc::ENOENT).contains("--device"),
                path != "/nowhere/at_all",
                "{path}"
            );
            assert!(said(libc::ENXIO).contains("load it"), "{path}");
            assert!(said(libc::EACCES).contains("setfacl"), "{path}");
        }
    }
}
