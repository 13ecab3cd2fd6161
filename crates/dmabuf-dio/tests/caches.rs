// SPDX-License-Identifier: MIT OR Apache-2.0
//! A udmabuf's first CPU access invalidates the caches on processors where DMA is not coherent by
//! default. Loaded data has been cleaned by then. QEMU has no caches, so this test watches the cache
//! operations of Linux, as `tests/guest/udmabuf-caches.c` does for the module.

mod common;

use std::fs;
use std::path::Path;

use common::{available, file_of, folder};
use dmabuf_dio::{Backend, Buffer, Kind, Loader};
use dmabuf_dio_sys::dmabuf::Access;

const LEN: u64 = 1 << 20;
const TRACING: &str = "/sys/kernel/tracing";

fn set(name: &str, text: &str) {
    fs::write(Path::new(TRACING).join(name), text)
        .unwrap_or_else(|error| panic!("{name}: {error}"));
}

/// Bytes of memory that this thread has cleaned, and invalidated, since the last look.
fn look() -> (u64, u64) {
    let trace = fs::read_to_string(Path::new(TRACING).join("trace")).expect("the trace");
    set("trace", "");
    let mut bytes = (0, 0);
    for line in trace.lines() {
        let Some((event, values)) = line.split_once(" size=") else { continue };
        let (size, direction) = values.split_once(" dir=").expect("both");
        let size: u64 = size.parse().expect("a number");
        match (event.contains(" clean:"), direction) {
            (true, _) => bytes.0 += size,
            // To the device: nothing is invalidated.
            (false, "1") => {}
            (false, _) => bytes.1 += size,
        }
    }
    bytes
}

#[test]
fn udmabuf_is_cleaned_before_invalidation() {
    let symbols = fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    let coherent = !symbols.lines().any(|line| line.ends_with(" arch_sync_dma_for_cpu"));
    if coherent || !Path::new(TRACING).join("kprobe_events").exists() {
        return println!("skipped: this processor's caches are coherent, or nothing can be traced");
    }
    if !available(Backend::Udmabuf) {
        return;
    }
    set(
        "kprobe_events",
        "p:dio/clean arch_sync_dma_for_device size=%x1:u64 dir=%x2:u32\n\
         p:dio/invalidate arch_sync_dma_for_cpu size=%x1:u64 dir=%x2:u32\n",
    );
    // SAFETY: the call has no arguments and cannot fail.
    let thread = unsafe { libc::gettid() };
    set("events/dio/filter", &format!("common_pid == {thread}"));
    set("events/dio/enable", "1");

    let folder = folder();
    for len in [LEN, LEN + 12345] {
        let (path, _) = file_of(&folder, len as usize);
        let check = |what: &str, buf: &Buffer| {
            let (cleaned, _) = look();
            buf.begin_cpu_access(Access::Read).expect("begun");
            let (_, invalidated) = look();
            buf.end_cpu_access(Access::Read).expect("ended");
            look();
            println!("{what}, {len} bytes: {cleaned} cleaned, then {invalidated} invalidated");
            // Kernels with kernel/series/udmabuf do nothing for a device that is not attached.
            if invalidated != 0 {
                assert!(invalidated >= len && cleaned >= invalidated, "{what}: {cleaned}");
            }
        };
        look();
        let loaded = Loader::new(&path).backend(Backend::Udmabuf).load().expect("loaded");
        check("load", &loaded);
        let file = Loader::new(&path).kind(Kind::File).load().expect("loaded");
        let over = file.dma_buf().expect("a dma-buf").try_clone().expect("a descriptor");
        check("a file", &Buffer::from(over));
    }
    set("events/dio/enable", "0");
    set("kprobe_events", "");
}
