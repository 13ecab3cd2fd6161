// SPDX-License-Identifier: MIT OR Apache-2.0
//! A kernel without overcommit (`vm.overcommit_memory` of 2): a memfd page that cannot be allocated
//! is an error and kills no process. The test changes a system-wide setting, so it runs only in
//! guests, alone in its process.

mod common;

use std::fs;

use dmabuf_dio::{Buffer, Error};

const MODE: &str = "/proc/sys/vm/overcommit_memory";
const LIMIT: &str = "/proc/sys/vm/overcommit_kbytes";

/// Restores the kernel's setting, whatever happens.
struct Restored(String);

impl Drop for Restored {
    fn drop(&mut self) {
        let _ = fs::write(MODE, &self.0);
        let _ = fs::write(LIMIT, "0");
    }
}

#[test]
fn uncommitted_page_is_an_error() {
    if std::env::var_os("DMABUF_DIO_KERNEL").is_none() {
        println!("skipped: not in a guest");
        return;
    }
    let meminfo = fs::read_to_string("/proc/meminfo").expect("meminfo");
    let committed = meminfo.lines().find_map(|line| line.strip_prefix("Committed_AS:"));
    let committed =
        committed.and_then(|line| line.trim().strip_suffix(" kB")).expect("Committed_AS");
    let mut buf = Buffer::memfd(64 << 20).expect("memfd");
    let _restored = Restored(fs::read_to_string(MODE).expect("mode"));
    let limit: u64 = committed.parse().expect("a number");
    fs::write(LIMIT, (limit + (24 << 10)).to_string()).expect("limit");
    fs::write(MODE, "2").expect("mode");

    let another = Buffer::memfd(64 << 20).expect_err("more than may be promised");
    assert!(matches!(another, Error::NoMemory { available: Some(_), .. }), "{another}");
    let mut map = buf.map_mut().expect("map");
    let mut out = [1; 4096];
    map.read_at(0, &mut out).expect("the first page");
    assert_eq!(out, [0; 4096]);
    let full = map.fill_at(0, 64 << 20, 7).expect_err("more than was promised");
    assert!(matches!(&full, Error::Buffer { errno, .. } if errno.raw() == libc::EFAULT), "{full}");
    let read = (0..64 << 20).step_by(1 << 20).find_map(|at| map.read_at(at, &mut out).err());
    assert!(matches!(read, Some(Error::Buffer { .. })), "{read:?}");
}
