// SPDX-License-Identifier: MIT OR Apache-2.0
//! Device nodes that backends need, and why one cannot be opened.

use std::os::unix::fs::MetadataExt as _;
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
                "{}, or: sudo setfacl -m u:$USER:{} {}",
                self.group().map_or_else(
                    || "run as root".to_owned(),
                    |group| format!("sudo usermod -aG {group} $USER, and log in again")
                ),
                self.access,
                self.path
            )),
        };
        refusal.errno(errno)
    }

    /// The name of the group that may use the node, if it is not root's.
    fn group(&self) -> Option<String> {
        let node = std::fs::metadata(self.path).ok()?;
        let may = node.gid() != 0 && node.mode() & 0o060 == 0o060;
        may.then(|| name_of(node.gid(), &std::fs::read_to_string("/etc/group").ok()?)).flatten()
    }

    /// Whether the kernel has the device, by its classes: a container sees all devices there, and has only the nodes
    /// that it is given.
    fn has_device(&self, classes: &Path) -> bool {
        let name = Path::new(self.path).file_name().unwrap_or_default();
        ["misc", "dma_heap"].iter().any(|class| classes.join(class).join(name).exists())
    }
}

/// The name of a group in the text of group(5).
pub(crate) fn name_of(number: u32, groups: &str) -> Option<String> {
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(number)).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::errno::Errno;

    #[test]
    fn group_of_a_node_is_named() {
        let groups = "root:x:0:\nvideo:x:44:ann,bob\nshort\nodd:x:no:\nlast:x:4294967295:\n";
        assert_eq!(name_of(44, groups).as_deref(), Some("video"));
        assert_eq!(name_of(u32::MAX, groups).as_deref(), Some("last"));
        assert_eq!(name_of(4, groups), None);
    }

    #[test]
    fn who_may_not_open_a_node_joins_its_group() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let path = file.path().to_str().expect("UTF-8").to_owned().leak() as &str;
        let node = Node { path, access: "rw", missing: "", remedy: "" };
        let remedy = || node.refuse(Backend::Module, Errno::ACCESS).remedy.unwrap_or_default();
        for (mode, group) in [(0o600, 44), (0o640, 44), (0o660, 0)] {
            if std::os::unix::fs::chown(path, None, Some(group)).is_err() {
                return println!("skipped: not root");
            }
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("chmod");
            assert!(remedy().starts_with("run as root, or: sudo setfacl"), "{}", remedy());
        }
        std::os::unix::fs::chown(path, None, Some(44)).expect("chown");
        let groups = std::fs::read_to_string("/etc/group").unwrap_or_default();
        let Some(name) = name_of(44, &groups) else { return println!("skipped: no group 44") };
        let wanted = format!("sudo usermod -aG {name} $USER, and log in again, or: sudo setfacl");
        assert!(remedy().starts_with(&wanted), "{}", remedy());
    }

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
