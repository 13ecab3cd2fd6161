// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every page of a new buffer is on the node that was asked for, whoever touches it first.
//!
//! Where a page is comes from its frame number, not from the call that the library uses. The kernel does not show
//! those of a dma-buf: its memory is looked for in what each node has free once the buffer is gone. That needs root, and
//! two nodes with memory: `vm/run --numa 2`.

#![cfg(target_os = "linux")]

mod common;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use common::{assert_same, backends, file_of, folder, huge, page};
use dmabuf_dio::{Backend, Buffer, DmaBuf, Error, Kind, Loader, Numa, probe};
use dmabuf_dio_sys::mempolicy::{self, Nodes, Policy};

/// Bytes of a large file: twelve huge pages, or six of the module's pieces.
const LARGE: usize = 24 << 20;

/// One test at a time: each needs the memory of the nodes.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The numbers in a list such as `0-2,4`.
fn numbers(list: &str) -> Vec<u32> {
    let number = |text: &str| text.parse().expect("a number");
    let ranges = list.trim().split(',').filter(|range| !range.is_empty());
    let range = |range: &str| match range.split_once('-') {
        Some((first, last)) => number(first)..=number(last),
        None => number(range)..=number(range),
    };
    ranges.flat_map(range).collect()
}

/// The nodes with memory, if there are two or more and pages can be looked up.
fn nodes() -> Option<Vec<u32>> {
    let list = fs::read_to_string("/sys/devices/system/node/has_memory").unwrap_or_default();
    let nodes = numbers(&list);
    if nodes.len() < 2 {
        println!("skipped: there is one node");
        return None;
    }
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root sees where pages are");
        return None;
    }
    Some(nodes)
}

/// The frames of each node.
fn frames() -> Vec<(Range<u64>, u32)> {
    let mut found = Vec::new();
    let (mut node, mut spanned) = (0, 0);
    for line in fs::read_to_string("/proc/zoneinfo").expect("zones").lines() {
        let words: Vec<_> = line.split([' ', ',', ':']).filter(|word| !word.is_empty()).collect();
        match words[..] {
            ["Node", number, "zone", _] => node = number.parse().expect("a node"),
            ["spanned", pages] => spanned = pages.parse().expect("a number"),
            ["start_pfn", first] => {
                let first: u64 = first.parse().expect("a number");
                found.push((first..first + spanned, node));
            }
            _ => {}
        }
    }
    found
}

/// How many pages of a buffer are on each node.
fn places(what: &str, buffer: &Buffer, frames: &[(Range<u64>, u32)]) -> BTreeMap<u32, u64> {
    let view = buffer.map().expect("mapped");
    // A page is mapped once it is touched.
    view.to_vec().expect("its bytes");
    let pages = view.len().div_ceil(page() as u64);
    let mut entries = vec![0; pages as usize * 8];
    let pagemap = File::open("/proc/self/pagemap").expect("the map of pages");
    let at = view.as_ptr().addr() / page() * 8;
    pagemap.read_exact_at(&mut entries, at as u64).expect("its entries");
    let mut found = BTreeMap::new();
    for entry in entries.chunks_exact(8) {
        let entry = u64::from_ne_bytes(entry.try_into().expect("eight bytes"));
        let frame = entry & ((1 << 55) - 1);
        assert!(entry >> 63 == 1 && frame != 0, "{what}: a page is not there: {entry:x}");
        let place = frames.iter().find(|(range, _)| range.contains(&frame));
        *found.entry(place.expect("a frame of a node").1).or_insert(0) += 1;
    }
    found
}

/// How many free pages each node has, also in reserved huge pages.
fn free() -> BTreeMap<u32, u64> {
    let mut found = BTreeMap::new();
    let mut node = 0;
    for line in fs::read_to_string("/proc/zoneinfo").expect("zones").lines() {
        let words: Vec<_> = line.split([' ', ',']).filter(|word| !word.is_empty()).collect();
        match words[..] {
            ["Node", number, "zone", _] => node = number.parse().expect("a node"),
            // Those that a processor keeps to itself, too
            ["pages", "free", pages] | ["count:", pages] => {
                *found.entry(node).or_insert(0) += pages.parse::<u64>().expect("a number");
            }
            _ => {}
        }
    }
    let in_huge = (huge() / page()) as u64;
    for (node, pages) in &mut found {
        let folder = format!("/sys/devices/system/node/node{node}/hugepages");
        let file = format!("{folder}/hugepages-{}kB/free_hugepages", huge() / 1024);
        let reserved = fs::read_to_string(file).unwrap_or_default();
        *pages += reserved.trim().parse::<u64>().map_or(0, |huge| huge * in_huge);
    }
    found
}

/// How many pages of each node become free with a buffer, without what others free meanwhile.
fn freed_with(buffer: Buffer) -> BTreeMap<u32, u64> {
    let before = free();
    drop(buffer);
    let gained =
        free().into_iter().map(|(node, pages)| (node, pages.saturating_sub(before[&node])));
    gained.filter(|(_, pages)| *pages > (LARGE / 8 / page()) as u64).collect()
}

/// Runs this thread on a processor of the node.
fn run_on(node: u32) {
    let list = fs::read_to_string(format!("/sys/devices/system/node/node{node}/cpulist"));
    let processors = numbers(&list.expect("processors"));
    let first = *processors.first().expect("a processor on the node");
    // SAFETY: the set is a valid value, and outlives the calls.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(first as usize, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &raw const set), 0);
    }
    assert_eq!(mempolicy::here(), Ok(node));
}

/// A way to load, for the messages.
fn ways(path: &Path) -> Vec<(String, Loader<'static>)> {
    let loader = || Loader::new(path);
    let mut ways = Vec::new();
    for kind in [Kind::Private, Kind::Memfd, Kind::File] {
        for huge in [true, false] {
            for direct in [true, false] {
                let loader = loader().kind(kind).huge_pages(huge).direct(direct);
                ways.push((format!("{kind:?}, huge {huge}, direct {direct}"), loader));
            }
        }
    }
    let buffered = loader().backend(Backend::Buffered);
    ways.push(("memfd, buffered".into(), buffered.clone().kind(Kind::Memfd)));
    for backend in backends() {
        // The others make a memfd.
        if backend == Backend::Memfd || backend == Backend::Buffered && !has_heap() {
            continue;
        }
        let loader = loader().backend(backend).kind(Kind::DmaBuf);
        ways.push((format!("dma-buf by {backend}, small"), loader.clone().huge_pages(false)));
        ways.push((format!("dma-buf by {backend}"), loader));
    }
    ways
}

#[test]
fn every_page_is_on_the_node_that_was_asked_for() {
    let _alone = alone();
    let Some(nodes) = nodes() else { return };
    let (folder, frames) = (folder(), frames());
    for size in [3 * page() + 100, LARGE] {
        let (path, expected) = file_of(&folder, size);
        for (way, loader) in ways(&path) {
            for &node in &nodes {
                let other = *nodes.iter().find(|other| **other != node).expect("two nodes");
                run_on(other);
                check(&way, &loader, Numa::Node(node), &expected, &frames, |found| {
                    found.len() == 1 && found.contains_key(&node)
                });
                run_on(node);
                check(&way, &loader, Numa::Local, &expected, &frames, |found| {
                    found.len() == 1 && found.contains_key(&node)
                });
            }
            check(&way, &loader, Numa::Interleave, &expected, &frames, |found| {
                let (all, nodes) = (found.values().sum::<u64>(), nodes.len() as u64);
                let is_fair = |pages: &u64| (all / 2..=all * 3 / 2).contains(&(pages * nodes));
                size < LARGE || found.len() as u64 == nodes && found.values().all(is_fair)
            });
        }
    }
}

/// After `mlockall(MCL_FUTURE)`, which holds for a whole process.
#[test]
fn memory_that_is_allocated_as_it_is_mapped_is_on_its_node() {
    let _alone = alone();
    let name = "memory_that_is_allocated_as_it_is_mapped_is_on_its_node";
    let Some(nodes) = nodes() else { return };
    if std::env::var_os("NUMA_LOCKED").is_none() {
        let mut again = Command::new(std::env::current_exe().expect("this program"));
        again.args(["--exact", name, "--nocapture"]).env("NUMA_LOCKED", "1");
        assert!(again.status().expect("run it").success());
        return;
    }
    let folder = folder();
    let files = [3 * page() + 100, LARGE].map(|size| file_of(&folder, size));
    // SAFETY: the call takes a number.
    assert_eq!(unsafe { libc::mlockall(libc::MCL_FUTURE) }, 0);
    for (path, _) in &files {
        for (way, loader) in ways(path) {
            for &node in &nodes {
                let other = *nodes.iter().find(|other| **other != node).expect("two nodes");
                run_on(other);
                let loaded = loader.clone().numa(Numa::Node(node)).load().expect("loaded");
                let report = loaded.report().expect("a report");
                let found = report.nodes.iter().flatten().map(|(node, _)| *node);
                assert!(found.clone().all(|found| found == node), "{way}: {:?}", report.nodes);
            }
        }
    }
}

/// The kernel must not have to kill a process: it keeps some of what is free to itself.
#[test]
fn buffer_that_hardly_fits_on_a_node_kills_no_process() {
    let _alone = alone();
    let name = "buffer_that_hardly_fits_on_a_node_kills_no_process";
    let Some(nodes) = nodes() else { return };
    if let Some(kind) = std::env::var_os("NUMA_FULL") {
        let kind: Kind = kind.to_str().expect("text").parse().expect("a kind");
        let folder = folder();
        let path = folder.path().join("zeros");
        let file = File::create(&path).expect("create");
        for &node in &nodes {
            let available = probe::available_memory_of(node).expect("a node");
            file.set_len(available - (1 << 20)).expect("a sparse file");
            let loader = Loader::new(&path).kind(kind).huge_pages(false).numa(Numa::Node(node));
            match loader.load() {
                Err(Error::NodeMemory { .. } | Error::NoMemory { .. }) => {}
                loaded => drop(loaded.expect("loaded")),
            }
        }
        return;
    }
    for kind in [Kind::Private, Kind::Memfd, Kind::DmaBuf] {
        if kind == Kind::DmaBuf && !has_heap() {
            continue;
        }
        let mut again = Command::new(std::env::current_exe().expect("this program"));
        again.args(["--exact", name, "--nocapture"]).env("NUMA_FULL", kind.name());
        let status = again.status().expect("run it");
        assert!(status.success(), "{kind}: {status}");
    }
}

fn has_heap() -> bool {
    DmaBuf::alloc(1).is_ok()
}

fn check(
    way: &str,
    loader: &Loader<'_>,
    numa: Numa,
    expected: &[u8],
    frames: &[(Range<u64>, u32)],
    is_right: impl Fn(&BTreeMap<u32, u64>) -> bool,
) {
    let what = format!("{way}, {} bytes, {numa}", expected.len());
    // The policy of the thread says something else, and stays.
    let elsewhere = frames.iter().map(|(_, node)| *node).find(|node| Numa::Node(*node) != numa);
    let policy = Policy::prefer(Nodes::one(elsewhere.expect("another")).expect("a node"));
    mempolicy::set_thread(&policy).expect("set");
    let loaded = loader.clone().numa(numa).load().unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(mempolicy::thread(), Ok(policy), "{what}");
    let view = loaded.map().expect("mapped").to_vec().expect("bytes");
    let range = loaded.range();
    assert_same(&what, &view[range.start as usize..range.end as usize], expected);

    let report = loaded.report().expect("loaded");
    assert_eq!(report.numa, Some(numa), "{what}");
    let told = report.nodes.as_ref();
    let is_of_heap = loaded.kind() == Kind::DmaBuf && report.backend != Some(Backend::Udmabuf);
    assert_eq!(told.is_none(), is_of_heap, "{what}: {told:?}");
    let told = told.map(|told| {
        let pages = |bytes: &u64| bytes.div_ceil(page() as u64);
        told.iter().map(|(node, bytes)| (*node, pages(bytes))).collect::<BTreeMap<_, _>>()
    });
    if loaded.kind() == Kind::DmaBuf {
        let found = freed_with(loaded);
        assert!(expected.len() < LARGE || is_right(&found), "{what}: {found:?}");
        assert!(told.as_ref().is_none_or(&is_right), "{what}: {told:?} as told");
    } else {
        let found = places(&what, &loaded, frames);
        assert!(is_right(&found), "{what}: {found:?}");
        assert_eq!(told, Some(found), "{what}");
    }
}

#[test]
fn a_node_without_memory_is_an_error_that_lists_those_with_some() {
    let _alone = alone();
    let folder = folder();
    let (path, _) = file_of(&folder, page());
    let Ok(allowed) = mempolicy::allowed() else { return println!("skipped: no NUMA") };
    let last = allowed.numbers().last().expect("a node");
    for kind in [Kind::Any, Kind::Memfd, Kind::File, Kind::Private] {
        let loader = Loader::new(&path).kind(kind);
        let error = loader.clone().numa(Numa::Node(last + 1)).load().expect_err("no such node");
        let Error::Node { node, nodes } = &error else { panic!("{error}") };
        assert_eq!((*node, nodes), (last + 1, &allowed.numbers().collect()));
        assert!(error.hint().to_string().contains(&last.to_string()), "{}", error.hint());
        let loaded = loader.numa(Numa::Node(last)).load().expect("it has memory");
        assert_eq!(loaded.report().expect("loaded").numa, Some(Numa::Node(last)));
    }
}
