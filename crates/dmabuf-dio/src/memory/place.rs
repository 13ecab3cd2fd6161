// SPDX-License-Identifier: MIT OR Apache-2.0
//! The NUMA nodes that memory is put on, and those that it is on.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::fs;
use std::path::Path;

use dmabuf_dio_sys::mempolicy::{self, Nodes, Policy};

use super::Mapping;
use super::page::{huge_page, page_size};
use super::sizes::PageSizes;
use crate::errno::Errno;
use crate::error::{Error, Result};
use crate::numa::Numa;

/// The folder of the nodes, which a kernel without NUMA does not have.
const NODES: &str = "/sys/devices/system/node";

/// How many pages the kernel is asked about at a time.
const AT_A_TIME: usize = 4096;

/// Where the pages of new memory are to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    policy: Policy,
    /// The only node for them.
    only: Option<u32>,
}

impl Place {
    /// The place for memory that is created now by this thread. `None` if nothing was asked for, or if there
    /// is only one node that it could be.
    ///
    /// # Errors
    ///
    /// [`Error::Node`]; [`Error::Buffer`] if a call is blocked.
    pub(crate) fn of(numa: Option<Numa>) -> Result<Option<Self>> {
        let Some(numa) = numa else { return Ok(None) };
        let allowed = match mempolicy::allowed() {
            Err(Errno::NOSYS) if !Path::new(NODES).exists() => {
                return match numa {
                    Numa::Node(node) if node != 0 => Err(Error::Node { node, nodes: vec![0] }),
                    _ => Ok(None),
                };
            }
            allowed => allowed.map_err(refused)?,
        };
        Self::among(numa, allowed, || mempolicy::here().map_err(refused)).map(Some)
    }

    fn among(numa: Numa, allowed: Nodes, here: impl FnOnce() -> Result<u32>) -> Result<Self> {
        let one = |node| Nodes::one(node).filter(|_| allowed.has(node));
        Ok(match numa {
            // A node of its own would be that of the thread that touches a page first, which may be another.
            Numa::Local => {
                let policy = one(here()?).map_or_else(Policy::local, Policy::prefer);
                Self { policy, only: None }
            }
            Numa::Node(node) => match one(node) {
                Some(nodes) => Self { policy: Policy::bind(nodes), only: Some(node) },
                None => return Err(Error::Node { node, nodes: allowed.numbers().collect() }),
            },
            Numa::Interleave => Self { policy: Policy::interleave(allowed), only: None },
        })
    }

    /// Fails if `wanted` bytes do not fit into the memory of the only node that they may be on: the kernel
    /// would kill a process that uses it.
    pub(crate) fn ensure(&self, wanted: u64) -> Result<()> {
        let Some(node) = self.only else { return Ok(()) };
        match available(node) {
            Some(available) if wanted > available => {
                Err(Error::NodeMemory { node, wanted, available })
            }
            _ => Ok(()),
        }
    }

    /// Whether the only node has free reserved huge pages for `len` bytes. The kernel promises them without
    /// looking at nodes, and a touch fails where there is none.
    pub(crate) fn has_reserved(&self, len: u64) -> bool {
        let Some(node) = self.only else { return true };
        let kib = huge_page() / 1024;
        let path = format!("{NODES}/node{node}/hugepages/hugepages-{kib}kB/free_hugepages");
        let free = fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<u64>().ok());
        free.is_some_and(|pages| pages.saturating_mul(huge_page()) >= len)
    }

    /// Over how many nodes small pages are spread in turn.
    fn turns(&self) -> u64 {
        let in_turn = self.policy.mode == libc::MPOL_INTERLEAVE;
        if in_turn { self.policy.nodes.numbers().count() as u64 } else { 1 }
    }

    /// Makes a call that allocates memory in the kernel, in this thread.
    ///
    /// # Errors
    ///
    /// [`Error::Buffer`]: the call was not made, or the thread cannot have its own policy again.
    pub(crate) fn during<T>(&self, call: impl FnOnce() -> T) -> Result<T> {
        let before = mempolicy::thread().map_err(refused)?;
        mempolicy::set_thread(&self.policy).map_err(refused)?;
        let restore = Restore(before);
        let value = call();
        let restored = mempolicy::set_thread(&restore.0).map_err(refused);
        std::mem::forget(restore);
        restored.map(|()| value)
    }
}

impl Mapping {
    /// Puts pages that do not exist yet on the nodes that were asked for, if any were. Pages of a memfd in small
    /// pages follow in every mapping, those of one in reserved huge pages in this one.
    ///
    /// # Errors
    ///
    /// [`Error::Buffer`].
    pub(crate) fn put(&mut self, place: Option<&Place>) -> Result<()> {
        let Some(place) = place else { return Ok(()) };
        self.turns = place.turns();
        mempolicy::bind(self.as_ptr().addr(), self.whole(), &place.policy).map_err(refused)
    }
}

/// Maps new memory in the place that was asked for, if any was.
///
/// # Errors
///
/// Those of `map`, [`during`] and [`Mapping::put`].
pub(crate) fn mapped(
    place: Option<&Place>,
    map: impl FnOnce() -> Result<Mapping>,
) -> Result<Mapping> {
    // After mlockall(MCL_FUTURE), this thread allocates the pages as it maps them.
    let mut mapping = during(place, map)??;
    mapping.put(place)?;
    Ok(mapping)
}

/// Makes a call that allocates memory in the kernel, with the place that was asked for, if any.
///
/// # Errors
///
/// As for [`Place::of`] and [`Place::during`].
pub(crate) fn during<T>(place: Option<&Place>, call: impl FnOnce() -> T) -> Result<T> {
    match place {
        Some(place) => place.during(call),
        None => Ok(call()),
    }
}

/// Restores the policy of a thread after a panic.
struct Restore(Policy);

impl Drop for Restore {
    fn drop(&mut self) {
        let _ = mempolicy::set_thread(&self.0);
    }
}

fn refused(errno: Errno) -> Error {
    Error::Buffer { call: "place", errno }
}

/// The memory of a node that is free or can be freed and may be used, in bytes.
pub(crate) fn available(node: u32) -> Option<u64> {
    let found = of_node(&fs::read_to_string(format!("{NODES}/node{node}/meminfo")).ok()?)?;
    let zones = fs::read_to_string("/proc/zoneinfo").unwrap_or_default();
    Some(found.saturating_sub(kept_free(&zones, node).saturating_mul(page_size())))
}

/// How many pages of a node the kernel does not let go of: the high watermark of each zone and what it protects
/// from others, and a low watermark of files, as in `si_mem_available()`.
pub(crate) fn kept_free(zoneinfo: &str, node: u32) -> u64 {
    let head = format!("Node {node}, zone ");
    let (mut kept, mut is_ours) = (0_u64, false);
    for line in zoneinfo.lines() {
        let mut words = line.split([' ', ',', '(', ')']).filter(|word| !word.is_empty());
        let name = words.next().unwrap_or_default();
        let numbers = words.filter_map(|word| word.parse::<u64>().ok());
        match name {
            "Node" => is_ours = line.starts_with(&head),
            "low" | "high" | "protection:" if is_ours => {
                kept = kept.saturating_add(numbers.max().unwrap_or(0));
            }
            _ => {}
        }
    }
    kept
}

/// The sum of the lines `Node 0 NAME: NUMBER kB` that count.
pub(crate) fn of_node(meminfo: &str) -> Option<u64> {
    let field = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.split_once(&format!(" {name}:")));
        line?.1.split_ascii_whitespace().next()?.parse::<u64>().ok()
    };
    let files = ["Active(file)", "Inactive(file)", "SReclaimable"].into_iter().filter_map(field);
    let all = files.fold(field("MemFree")?, u64::saturating_add);
    Some(all.saturating_mul(1024))
}

/// Stores in `found` the nodes of pages, or negative numbers for those that are not there.
fn look_up(pages: &[*const c_void], found: &mut [i32]) -> Result<(), Errno> {
    mempolicy::places(pages, found).or_else(|_| {
        // Docker's profile allows move_pages(2) to nobody, and the other calls to those with CAP_SYS_NICE.
        for (page, found) in pages.iter().zip(found) {
            *found = mempolicy::place(*page)?.try_into().unwrap_or(-1);
        }
        Ok(())
    })
}

/// How many bytes of a mapping are on each node; `None` if the kernel does not say, or has no nodes. Pages that
/// were not touched through this mapping may not count.
pub(crate) fn on_nodes(mapping: &Mapping, sizes: Option<PageSizes>) -> Option<BTreeMap<u32, u64>> {
    let all_huge = sizes.is_some_and(|sizes| sizes.huge_bytes >= mapping.len());
    let step = if all_huge { sizes?.page_size } else { page_size() };
    let mut found = BTreeMap::new();
    let mut starts = (0..mapping.len()).step_by(step as usize).peekable();
    let mut places = Vec::new();
    while starts.peek().is_some() {
        let some: Vec<u64> = starts.by_ref().take(AT_A_TIME).collect();
        let pages: Vec<*const c_void> =
            some.iter().map(|start| mapping.at(*start).cast_const().cast()).collect();
        places.resize(pages.len(), 0);
        look_up(&pages, &mut places).ok()?;
        for (start, place) in some.iter().zip(&places) {
            if let Ok(node) = u32::try_from(*place) {
                *found.entry(node).or_insert(0) += step.min(mapping.len() - start);
            }
        }
    }
    (!found.is_empty()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(numbers: &[u32]) -> Nodes {
        let mut all = Nodes::NONE;
        for number in numbers {
            all = all.with(Nodes::one(*number).expect("a node"));
        }
        all
    }

    #[test]
    fn place_follows_from_the_nodes_that_are_allowed() {
        let allowed = nodes(&[0, 2]);
        let place = |numa, here| Place::among(numa, allowed, || Ok(here));
        let policy = |numa, here| place(numa, here).expect("a place").policy;
        assert_eq!(policy(Numa::Local, 2), Policy::prefer(nodes(&[2])));
        // The processor's node has no memory.
        assert_eq!(policy(Numa::Local, 1), Policy::local());
        assert_eq!(policy(Numa::Node(2), 0), Policy::bind(nodes(&[2])));
        assert_eq!(policy(Numa::Interleave, 0), Policy::interleave(allowed));
        assert_eq!(place(Numa::Interleave, 0).expect("a place").turns(), 2);
        for node in [1, 3, 5000] {
            let error = place(Numa::Node(node), 0).expect_err("it is not allowed");
            assert!(matches!(&error, Error::Node { nodes, .. } if *nodes == [0, 2]), "{error}");
            assert!(error.hint().to_string().contains("0, 2"), "{}", error.hint());
        }
    }

    #[test]
    fn a_node_with_too_little_memory_is_an_error() {
        let meminfo = "Node 1 MemTotal:  99 kB\nNode 1 MemFree:  5 kB\nNode 1 Active(file): 2 kB\n\
            Node 1 Active: 50 kB\nNode 1 Inactive(file):  1 kB\nNode 1 SReclaimable: 4 kB\n";
        assert_eq!(of_node(meminfo), Some(12 << 10));
        assert_eq!(of_node(""), None);
        // Numbers that no kernel has said yet, as the file system of a container might.
        assert_eq!(
            of_node(&format!("Node 0 MemFree: {} kB\nNode 0 SReclaimable: 1 kB\n", u64::MAX)),
            Some(u64::MAX)
        );
        assert_eq!(
            kept_free(&format!("Node 1, zone DMA\n low {}\n high 1\n", u64::MAX), 1),
            u64::MAX
        );
        let zones = "Node 1, zone DMA\n nr_free 9\n pages free 90\n min 1\n low 2\n high 3\n managed 90\n \
            protection: (0, 50, 40)\n high: 7\nNode 1, zone Normal\n low 4\n high 5\n protection: (0, 0, 0)\n\
            Node 11, zone Normal\n low 400\n high 500\n protection: (0, 0, 0)\n";
        assert_eq!(kept_free(zones, 1), 2 + 3 + 50 + 4 + 5);
        assert_eq!(kept_free("", 1), 0);
        let Ok(Some(place)) = Place::of(Some(Numa::Node(0))) else {
            return println!("skipped: no node 0");
        };
        assert!(place.ensure(4096).is_ok());
        if available(0).is_some() {
            let error = place.ensure(1 << 60).expect_err("more than there is");
            assert!(matches!(error, Error::NodeMemory { node: 0, available: 1.., .. }), "{error}");
        }
    }

    #[test]
    fn thread_keeps_its_policy() {
        let Ok(Some(place)) = Place::of(Some(Numa::Interleave)) else {
            return println!("skipped: no NUMA");
        };
        let before = mempolicy::thread().expect("a policy");
        let during = place.during(mempolicy::thread).expect("the call was made");
        assert_eq!(during, Ok(place.policy));
        assert_eq!(mempolicy::thread(), Ok(before));
        let panics = std::panic::AssertUnwindSafe(|| place.during(|| panic!("as it may")));
        assert!(std::panic::catch_unwind(panics).is_err());
        assert_eq!(mempolicy::thread(), Ok(before));
    }

    #[test]
    fn touched_pages_are_counted_by_node() {
        let len = 5 * page_size();
        let Ok(Some(place)) = Place::of(Some(Numa::Local)) else {
            return println!("skipped: no NUMA");
        };
        let mapping = mapped(Some(&place), || Mapping::mapped(len)).expect("memory");
        mapping.fill(page_size(), 3 * page_size(), 1).expect("filled");
        let Some(found) = on_nodes(&mapping, None) else { return println!("skipped: not told") };
        assert_eq!(found.values().sum::<u64>(), 3 * page_size(), "{found:?}");
    }
}
