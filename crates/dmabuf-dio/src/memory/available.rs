// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much memory may be allocated before the system or this process's control group runs out and
//! the kernel kills a process.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Allocations up to this size are not checked: the check takes longer than reading a small file.
const LITTLE: u64 = 16 << 20;

/// The party that is charged for a buffer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Charged {
    /// This process and its control group, as for memfds and private memory.
    Us,
    /// No process is charged, as for buffers of the dma-heaps.
    Nobody,
}

/// Fails if a buffer of `wanted` bytes does not fit into the memory that is free or can be freed:
/// allocating it anyway would trigger the OOM killer.
pub(crate) fn ensure(wanted: u64, charged: Charged) -> Result<()> {
    if wanted <= LITTLE {
        return Ok(());
    }
    match available(charged) {
        Some(available) if wanted > available => {
            Err(Error::NoMemory { wanted, available: Some(available), reserve: None })
        }
        _ => Ok(()),
    }
}

/// The memory that is free or can be freed, in bytes, and that this process may use if it is
/// charged for it; `None` if the kernel does not report it.
pub(crate) fn available(charged: Charged) -> Option<u64> {
    let Ok(meminfo) = fs::read_to_string("/proc/meminfo") else { return Some(of_the_machine()) };
    let swap = field_kib(&meminfo, "SwapFree").unwrap_or(0) * 1024;
    let available = field_kib(&meminfo, "MemAvailable")? * 1024 + swap;
    Some(match charged {
        Charged::Us => available.min(ours(&meminfo, swap).unwrap_or(u64::MAX)),
        Charged::Nobody => available,
    })
}

/// All memory of this machine and its free swap, in bytes: without /proc nothing says how much of it is
/// available, but more there cannot be.
#[allow(clippy::useless_conversion, reason = "the fields have 32 bits in a 32-bit program")]
fn of_the_machine() -> u64 {
    let system = rustix::system::sysinfo();
    let units = u64::from(system.totalram).saturating_add(system.freeswap.into());
    units.saturating_mul(system.mem_unit.max(1).into())
}

/// The memory that the kernel module counts as available, in bytes: without swap, and without free
/// memory in CMA areas, which only movable memory may use.
pub(crate) fn for_the_kernel() -> Option<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
    let cma = field_kib(&meminfo, "CmaFree").unwrap_or(0);
    Some(field_kib(&meminfo, "MemAvailable")?.saturating_sub(cma) * 1024)
}

/// The memory left to this process, if something limits it.
fn ours(meminfo: &str, swap: u64) -> Option<u64> {
    let promised = if overcommits() {
        None
    } else {
        let limit = field_kib(meminfo, "CommitLimit")?;
        Some(limit.saturating_sub(field_kib(meminfo, "Committed_AS")?) * 1024)
    };
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let of_groups = [V2, V1].iter().filter_map(|version| version.available(&mounts, &groups, swap));
    of_groups.chain(promised).min()
}

/// Whether memory is overcommitted: all modes but 2 of `vm.overcommit_memory`,
/// Documentation/mm/overcommit-accounting.rst. In mode 2, touching a memfd page that cannot be
/// allocated raises `SIGBUS`.
pub(crate) fn overcommits() -> bool {
    fs::read_to_string("/proc/sys/vm/overcommit_memory").is_ok_and(|mode| mode.trim() != "2")
}

/// The names in a version of control groups: Documentation/admin-guide/cgroup-v2.rst and
/// cgroup-v1/memory.rst.
struct Version {
    fs: &'static str,
    /// In the mount options; empty if one mount has all controllers.
    controller: &'static str,
    limit: &'static str,
    usage: &'static str,
    /// In memory.stat: file pages, which can be reclaimed.
    files: [&'static str; 2],
    swap: Option<[&'static str; 2]>,
}

const V2: Version = Version {
    fs: "cgroup2",
    controller: "",
    limit: "memory.max",
    usage: "memory.current",
    files: ["inactive_file", "active_file"],
    swap: Some(["memory.swap.max", "memory.swap.current"]),
};

const V1: Version = Version {
    fs: "cgroup",
    controller: "memory",
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    files: ["total_inactive_file", "total_active_file"],
    swap: None,
};

impl Version {
    /// The memory left to the group and its ancestors; `None` without a limit.
    fn available(&self, mounts: &str, groups: &str, swap: u64) -> Option<u64> {
        let (root, mount) = mounts.lines().find_map(|line| self.mount(line))?;
        let group = groups.lines().find_map(|line| self.group(line))?;
        // In a container the mount may start at the group, which then has another name.
        let below = group.strip_prefix(root).unwrap_or("").trim_start_matches('/');
        let inner = mount.join(below);
        inner
            .ancestors()
            .take_while(|folder| folder.starts_with(&mount))
            .filter_map(|folder| self.left(folder, swap))
            .min()
    }

    /// Parses a line of /proc/self/mountinfo: the mounted group and the mount point.
    fn mount<'a>(&self, line: &'a str) -> Option<(&'a str, PathBuf)> {
        let (mount, fs) = line.split_once(" - ")?;
        let mut words = fs.split(' ');
        let matches = words.next() == Some(self.fs)
            && (self.controller.is_empty()
                || words.nth(1)?.split(',').any(|option| option == self.controller));
        let mut words = mount.split(' ').skip(3);
        let (root, path) = (words.next()?, words.next()?);
        matches.then(|| (root.trim_end_matches('/'), PathBuf::from(path.replace("\\040", " "))))
    }

    /// Parses a line of /proc/self/cgroup: this process's group.
    fn group<'a>(&self, line: &'a str) -> Option<&'a str> {
        let (_, line) = line.split_once(':')?;
        let (controllers, group) = line.split_once(':')?;
        controllers.split(',').any(|name| name == self.controller).then_some(group)
    }

    fn left(&self, folder: &Path, swap: u64) -> Option<u64> {
        let number = |name: &str| number(&folder.join(name));
        let limit = number(self.limit)?;
        let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
        let files: u64 = self.files.iter().filter_map(|name| field(&stat, name)).sum();
        let swap = self.swap.map_or(0, |[max, current]| {
            let left = number(max).unwrap_or(u64::MAX);
            left.saturating_sub(number(current).unwrap_or(0)).min(swap)
        });
        let left = limit.saturating_sub(number(self.usage)?);
        Some(left.saturating_add(files).saturating_add(swap))
    }
}

/// The number in a file; `None` if it says "max" or the file is missing.
fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// A number from lines of `name number`.
pub(crate) fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

/// A number from lines of `name: number kB`.
pub(crate) fn field_kib(text: &str, name: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .and_then(|value| value.split_ascii_whitespace().next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_beyond_available_memory_fails() {
        let all = ensure(1 << 60, Charged::Nobody);
        assert!(matches!(all, Err(Error::NoMemory { available: Some(1..), .. })));
        assert!(ensure(4096, Charged::Us).is_ok());
        // The value that is reported without /proc
        assert!(
            available(Charged::Us).is_some_and(|left| (LITTLE..=of_the_machine()).contains(&left))
        );
    }

    /// A tree of groups: the folder, its limit, its usage.
    fn tree(version: &Version, groups: &[(&str, &str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("folder");
        for (path, limit, usage) in groups {
            let folder = root.path().join(path);
            fs::create_dir_all(&folder).expect("group");
            let stat = format!("{} 30\n{} 5\nanon 99\n", version.files[0], version.files[1]);
            let files = [(version.limit, *limit), (version.usage, *usage), ("memory.stat", &stat)];
            for (name, content) in files {
                fs::write(folder.join(name), content).expect("file of the group");
            }
        }
        root
    }

    fn mounted(root: &tempfile::TempDir, group: &str, fs: &str) -> String {
        let path = root.path().display();
        format!(
            "24 1 0:21 / /proc rw - proc proc rw\n35 24 0:30 {group} {path} rw shared:9 - {fs}\n"
        )
    }

    #[test]
    fn tightest_control_group_limits_memory() {
        let groups =
            [("a", "1000\n", "400\n"), ("a/b", "2000\n", "300\n"), ("a/b/c", "max\n", "9\n")];
        let root = tree(&V2, &groups);
        let mounts = mounted(&root, "/", "cgroup2 none rw");
        let left = |group: &str| V2.available(&mounts, &format!("0::{group}\n"), 0);
        assert_eq!(left("/a/b/c"), Some(635));
        assert_eq!(left("/a"), Some(635));
        assert_eq!(left("/"), None);
        assert_eq!(left("/a/b/c/gone"), Some(635));
        assert_eq!(V2.available("", "0::/a\n", 0), None);
        assert_eq!(V2.available(&mounts, "4:memory:/a\n", 0), None);
    }

    #[test]
    fn swap_counts_up_to_the_group_limit() {
        let root = tree(&V2, &[("a", "1000", "400")]);
        let mounts = mounted(&root, "/", "cgroup2 none rw");
        let left = |swap: u64| V2.available(&mounts, "0::/a\n", swap);
        assert_eq!(left(100), Some(735));
        fs::write(root.path().join("a/memory.swap.max"), "70\n").expect("limit");
        fs::write(root.path().join("a/memory.swap.current"), "20\n").expect("usage");
        assert_eq!(left(100), Some(685));
    }

    #[test]
    fn full_group_can_reclaim_its_file_pages() {
        let root = tree(&V1, &[("a", "1000", "1200")]);
        let groups = "5:cpu:/\n4:blkio,memory:/a\n0::/\n";
        let mounts = mounted(&root, "/", "cgroup none rw,blkio,memory");
        assert_eq!(V1.available(&mounts, groups, 77), Some(35));
        let other = mounted(&root, "/", "cgroup none rw,cpu");
        assert_eq!(V1.available(&other, groups, 0), None);
    }

    #[test]
    fn container_group_is_found_at_its_mount() {
        let root = tree(&V1, &[("", "1000", "100"), ("in", "500", "100")]);
        // Docker binds the group itself; the process knows it by the outer name.
        let mounts = mounted(&root, "/docker/x", "cgroup none rw,memory");
        assert_eq!(V1.available(&mounts, "4:memory:/docker/x\n", 0), Some(935));
        assert_eq!(V1.available(&mounts, "4:memory:/docker/x/in\n", 0), Some(435));
        assert_eq!(V1.available(&mounts, "4:memory:/\n", 0), Some(935));
    }
}
