// SPDX-License-Identifier: MIT OR Apache-2.0
//! Control groups of version 2.

use std::fs;
use std::path::{Path, PathBuf};

use crate::procfs::number;

const ROOT: &str = "/sys/fs/cgroup";

/// Mounts the hierarchy, if nobody has, and lets its groups limit memory. False if the kernel has
/// none.
pub(crate) fn prepare() -> bool {
    let root = Path::new(ROOT);
    if !root.join("cgroup.procs").exists() {
        let types = rustix::mount::MountFlags::empty();
        let _ = rustix::mount::mount("none", root, "cgroup2", types, None);
    }
    let _ = fs::write(root.join("cgroup.subtree_control"), "+memory");
    root.join("cgroup.procs").exists()
}

/// A group, which is removed when it is dropped, if nobody is in it.
pub(crate) struct Group(PathBuf);

impl Group {
    pub(crate) fn create(name: &str) -> Result<Self, String> {
        let path = Path::new(ROOT).join(name);
        match fs::create_dir(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                Err(format!("{}: {error}", path.display()))
            }
            _ => Ok(Self(path)),
        }
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.0.join(file)
    }

    pub(crate) fn set(&self, file: &str, value: &str) -> Result<(), String> {
        let path = self.path(file);
        fs::write(&path, value).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// The number of a line, or of the file if `name` is empty.
    pub(crate) fn number(&self, file: &str, name: &str) -> i64 {
        number(&self.path(file).to_string_lossy(), name)
    }

    /// Moves this process there, with all its threads.
    pub(crate) fn enter(&self) -> Result<(), String> {
        self.set("cgroup.procs", "0")
    }
}

/// Moves this process back.
pub(crate) fn leave() -> Result<(), String> {
    fs::write(Path::new(ROOT).join("cgroup.procs"), "0")
        .map_err(|error| format!("the root of control groups: {error}"))
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}
