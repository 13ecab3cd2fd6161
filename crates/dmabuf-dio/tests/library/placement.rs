// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that is placed and locked where system calls are blocked, and none at all.

use crate::common::{file_of, folder, page};
use crate::filter::{Call, failing};
use dmabuf_dio::{Buffer, Error, Kind, Loader, Numa, Options};

const KINDS: [Kind; 3] = [Kind::Private, Kind::Memfd, Kind::File];
const BLOCKED: [i32; 2] = [libc::EPERM, libc::ENOSYS];

#[test]
fn nodes_are_told_where_docker_allows_placing_memory() {
    let folder = folder();
    let len = 3 * page() + 100;
    let (path, _) = file_of(&folder, len);
    for kind in KINDS {
        let loader = Loader::new(&path).kind(kind).numa(Numa::Interleave);
        let usual = match loader.load() {
            Err(error @ Error::Buffer { call: "place", .. }) => {
                return println!("skipped: {error}");
            }
            loaded => loaded.expect("loaded").report().expect("a report").nodes.clone(),
        };
        if usual.is_none() {
            return println!("skipped: this kernel has no nodes");
        }
        for errno in BLOCKED {
            failing(&[Call::any(libc::SYS_move_pages)], errno, || {
                let loaded = loader.load().expect("loaded");
                let nodes = &loaded.report().expect("a report").nodes;
                let bytes = nodes.iter().flatten().map(|(_, bytes)| bytes).sum::<u64>();
                assert!(bytes >= len as u64, "{kind}: {nodes:?}");
            });
        }
    }
}

#[test]
fn blocked_calls_of_placing_have_their_remedy() {
    let folder = folder();
    let (path, _) = file_of(&folder, 3 * page());
    for call in [libc::SYS_get_mempolicy, libc::SYS_mbind] {
        for (kind, errno) in KINDS.into_iter().zip(BLOCKED.into_iter().cycle()) {
            failing(&[Call::any(call)], errno, || {
                let loader = Loader::new(&path).kind(kind).numa(Numa::Local);
                // There is nothing to do without nodes.
                let Err(error) = loader.load() else { return println!("skipped: no NUMA") };
                let hint = error.hint().to_string();
                assert!(hint.contains("mbind") && hint.contains("SYS_NICE"), "{error}: {hint}");
            });
        }
    }
}

#[test]
fn memory_is_locked_where_one_call_is_blocked() {
    let folder = folder();
    let (path, _) = file_of(&folder, 3 * page());
    for kind in KINDS {
        let loader = Loader::new(&path).kind(kind).lock(true);
        if let Err(error @ Error::Lock { .. }) = loader.load() {
            return println!("skipped: {error}");
        }
        for errno in BLOCKED {
            failing(&[Call::any(libc::SYS_mlock2)], errno, || {
                assert!(loader.load().expect("loaded").report().expect("a report").locked);
            });
            failing(&[Call::any(libc::SYS_mlock2), Call::any(libc::SYS_mlock)], errno, || {
                let error = loader.load().expect_err("nothing locks it");
                assert!(error.hint().to_string().contains("seccomp"), "{}", error.hint());
            });
            // Little memory is never in reserved huge pages.
            failing(&[Call::any(libc::SYS_fstatfs)], errno, || {
                let loaded = loader.load().expect("loaded");
                let notes = loaded.report().expect("a report").notes.join("; ");
                assert!(!notes.contains("nothing had to be locked"), "{kind}: {notes}");
            });
        }
    }
}

#[test]
fn no_memory_is_placed_and_locked() {
    for (numa, lock) in [(None, true), (Some(Numa::Local), false), (Some(Numa::Interleave), true)] {
        let options = Options { numa, lock, ..Options::default() };
        match Buffer::zeroed_with(0, &options) {
            Err(error @ Error::Buffer { call: "place", .. }) => println!("skipped: {error}"),
            buffer => assert!(buffer.expect("as without a place").is_empty()),
        }
    }
}
