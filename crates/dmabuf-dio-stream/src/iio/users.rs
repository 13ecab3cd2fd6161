// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes that use an IIO device.

use std::fs;
use std::path::{Path, PathBuf};

/// The name of an open buffer in procfs, which does not tell the device.
const BUFFER: &str = "anon_inode:iio:buffer";

/// A process that has a device open.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct User {
    /// Its number.
    pub pid: u32,
    /// The name of its program, up to 15 bytes of it.
    pub command: String,
    /// The node that it has open.
    pub holds: Holds,
}

/// The node that a process has open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
pub enum Holds {
    /// The device's node in `/dev`.
    Node,
    /// A buffer: the only one in use on this system.
    Buffer,
    /// A buffer, of this device or of another one whose buffer is in use: the kernel does not say
    /// of which.
    SomeBuffer,
}

/// The processes that have an IIO device or buffer open, as far as this user may see.
#[derive(Debug, Default)]
pub(crate) struct Users {
    /// With the node.
    nodes: Vec<(PathBuf, User)>,
    buffers: Vec<User>,
}

impl Users {
    pub(crate) fn now() -> Self {
        Self::of(Path::new("/proc"))
    }

    /// Reads a procfs.
    pub(crate) fn of(proc: &Path) -> Self {
        let mut users = Self::default();
        let Ok(entries) = fs::read_dir(proc) else { return users };
        for entry in entries.flatten() {
            let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if let Some(pid) = pid {
                users.add(pid, &entry.path());
            }
        }
        users.nodes.sort_unstable();
        users.nodes.dedup();
        users.buffers.sort_unstable();
        users.buffers.dedup();
        users
    }

    fn add(&mut self, pid: u32, process: &Path) {
        let user = |holds| {
            let command = fs::read_to_string(process.join("comm")).unwrap_or_default();
            User { pid, command: command.trim().to_owned(), holds }
        };
        let Ok(entries) = fs::read_dir(process.join("fd")) else { return };
        for target in entries.flatten().filter_map(|entry| fs::read_link(entry.path()).ok()) {
            if target == Path::new(BUFFER) {
                self.buffers.push(user(Holds::Buffer));
            } else if target.to_str().is_some_and(|path| path.starts_with("/dev/iio:device")) {
                self.nodes.push((target, user(Holds::Node)));
            }
        }
    }

    /// The users of a device. `in_use`: a buffer of the device is in use. `others`: a buffer of
    /// another device is in use.
    pub(crate) fn of_device(&self, node: &Path, in_use: bool, others: bool) -> Vec<User> {
        let mut users: Vec<_> = self
            .nodes
            .iter()
            .filter(|(path, _)| path == node)
            .map(|(_, user)| user.clone())
            .collect();
        if in_use {
            let holds = if others { Holds::SomeBuffer } else { Holds::Buffer };
            users.extend(self.buffers.iter().map(|user| User { holds, ..user.clone() }));
        }
        users
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn processes_holding_a_device_or_buffer_are_found() {
        let proc = tempfile::tempdir().expect("a folder");
        let process = |pid: &str, command: &str, targets: &[&str]| {
            let folder = proc.path().join(pid).join("fd");
            fs::create_dir_all(&folder).expect("folders");
            fs::write(proc.path().join(pid).join("comm"), format!("{command}\n")).expect("written");
            for (number, target) in targets.iter().enumerate() {
                symlink(target, folder.join(number.to_string())).expect("a link");
            }
        };
        process("20", "iiod", &["/dev/null", "/dev/iio:device1", BUFFER]);
        process("7", "dmabuf-dio", &[BUFFER, BUFFER]);
        process("8", "sh", &["/dev/iio:device11", "/home/x/dev/iio:device1"]);
        process("self", "sh", &["/dev/iio:device1"]);
        let users = Users::of(proc.path());
        let user = |pid, command: &str, holds| User { pid, command: command.into(), holds };
        let node = Path::new("/dev/iio:device1");
        let iiod = user(20, "iiod", Holds::Node);
        assert_eq!(users.of_device(node, false, true), std::slice::from_ref(&iiod));
        let all = users.of_device(node, true, false);
        let buffers = [user(7, "dmabuf-dio", Holds::Buffer), user(20, "iiod", Holds::Buffer)];
        assert_eq!(all, [&[iiod][..], &buffers].concat());
        let either = users.of_device(Path::new("/dev/iio:device2"), true, true);
        assert!(either.len() == 2 && either.iter().all(|one| one.holds == Holds::SomeBuffer));
        assert!(users.of_device(Path::new("/dev/iio:device2"), false, false).is_empty());
    }
}
