// SPDX-License-Identifier: MIT OR Apache-2.0
//! What moving a file into a dma-buf costs the CPU, way by way.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::ptr;

use dmabuf_dio_sys::{dio, heap, udmabuf};
use io_uring::IoUring;
use rustix::fs::OFlags;
use rustix::mm::{MapFlags, ProtFlags};
use serde::Serialize;

use crate::busy::Spinner;
use crate::ring;

const MIB: u64 = 1 << 20;

/// One line of the result.
#[derive(Serialize)]
struct Row {
    way: &'static str,
    /// Busy nanoseconds per MiB: median, least and most over the runs.
    ns_per_mib: Option<[u64; 3]>,
    /// Bytes the CPU copied or zeroed per byte of the file.
    copied: f64,
    zeroed: f64,
    /// Why there is no figure.
    skipped: Option<String>,
}

/// A file full of data, its length, and what to measure with.
struct Bench {
    direct: File,
    buffered: File,
    len: u64,
    spinner: Spinner,
}

type Way = fn(&Bench) -> io::Result<u64>;

/// The ways: name, bytes copied and bytes zeroed by the CPU per byte, the measurement.
const WAYS: [(&str, f64, f64, Way); 12] = [
    ("system heap: allocate", 0.0, 1.0, allocate),
    ("system heap: buffered read into the mapping", 1.0, 0.0, buffered_read),
    ("memfd, io_uring registered, 1 MiB x 8", 0.0, 0.0, registered_memfd),
    ("module: attach a system-heap buffer, once", 0.0, 0.0, attach),
    ("module: READ, default chunk and depth", 0.0, 0.0, module_read),
    ("module: READ, one 32 MiB request at a time", 0.0, 0.0, module_read_32m),
    ("module: slot, 1 MiB x 8", 0.0, 0.0, slot_1m),
    ("module: slot, 8 MiB x 4", 0.0, 0.0, slot_8m),
    ("module: LOAD, allocation included", 0.0, 0.0, module_load),
    ("series: copy_file_range, system heap", 0.0, 0.0, copy_to_heap),
    ("series: copy_file_range, udmabuf of 4 KiB pages", 0.0, 0.0, copy_to_udmabuf),
    ("series: heap flag, allocation included", 0.0, 0.0, heap_read),
];

/// Runs all ways and prints the result.
pub(crate) fn run(dir: &Path, mib: u64, runs: u32, only: &str, json: bool) -> io::Result<()> {
    let path = dir.join("dmabuf-dio-bench.data");
    write_file(&path, mib)?;
    let bench = Bench {
        direct: OpenOptions::new()
            .read(true)
            .custom_flags(OFlags::DIRECT.bits() as i32)
            .open(&path)?,
        buffered: File::open(&path)?,
        len: mib * MIB,
        spinner: Spinner::start()?,
    };

    let mut rows = Vec::new();
    for (way, copied, zeroed, measure) in WAYS.into_iter().filter(|row| row.0.contains(only)) {
        let results: io::Result<Vec<u64>> = (0..runs)
            .map(|_| {
                drop_cache(&bench.buffered)?;
                measure(&bench)
            })
            .collect();
        let (ns_per_mib, skipped) = match results {
            Ok(mut ns) => {
                ns.sort_unstable();
                (Some([ns[ns.len() / 2] / mib, ns[0] / mib, ns[ns.len() - 1] / mib]), None)
            }
            Err(error) => (None, Some(error.to_string())),
        };
        rows.push(Row { way, ns_per_mib, copied, zeroed, skipped });
    }
    std::fs::remove_file(&path)?;

    if json {
        println!("{}", serde_json::to_string_pretty(&rows)?);
    } else {
        print_table(&rows, mib, runs);
    }
    Ok(())
}

fn print_table(rows: &[Row], mib: u64, runs: u32) {
    println!("{mib} MiB file, {runs} runs, busy CPU ns per MiB (under icount: instructions)");
    println!("{:<46} {:>10} {:>23} {:>7} {:>7}", "way", "median", "min - max", "copied", "zeroed");
    for row in rows {
        match (&row.ns_per_mib, &row.skipped) {
            (Some([median, min, max]), _) => println!(
                "{:<46} {median:>10} {:>23} {:>7.1} {:>7.1}",
                row.way,
                format!("{min} - {max}"),
                row.copied,
                row.zeroed
            ),
            (None, reason) => {
                println!("{:<46} {:>10}", row.way, reason.as_deref().unwrap_or("-"));
            }
        }
    }
}

fn write_file(path: &Path, mib: u64) -> io::Result<()> {
    let mut file = File::create(path)?;
    let mut block = vec![0u8; MIB as usize];
    for number in 0..mib {
        for (index, byte) in block.iter_mut().enumerate() {
            *byte = (number as usize ^ index ^ (index >> 8)) as u8;
        }
        file.write_all(&block)?;
    }
    file.sync_all()
}

fn drop_cache(file: &File) -> io::Result<()> {
    Ok(rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed)?)
}

fn heap_buffer(bench: &Bench) -> io::Result<OwnedFd> {
    let heap = heap::open(heap::SYSTEM)?;
    Ok(heap::alloc(heap.as_fd(), bench.len)?)
}

/// A context with a fresh system-heap buffer attached.
fn attached(bench: &Bench) -> io::Result<OwnedFd> {
    let buffer = heap_buffer(bench)?;
    let context = dio::open()?;
    dio::attach(context.as_fd(), buffer.as_fd())?;
    Ok(context)
}

fn allocate(bench: &Bench) -> io::Result<u64> {
    let heap = heap::open(heap::SYSTEM)?;
    let start = bench.spinner.mark();
    let _buffer = heap::alloc(heap.as_fd(), bench.len)?;
    Ok(bench.spinner.busy_since(start))
}

fn attach(bench: &Bench) -> io::Result<u64> {
    let buffer = heap_buffer(bench)?;
    let context = dio::open()?;
    let start = bench.spinner.mark();
    dio::attach(context.as_fd(), buffer.as_fd())?;
    Ok(bench.spinner.busy_since(start))
}

fn buffered_read(bench: &Bench) -> io::Result<u64> {
    let buffer = heap_buffer(bench)?;
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let address = unsafe {
        rustix::mm::mmap(
            ptr::null_mut(),
            bench.len as usize,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
            &buffer,
            0,
        )?
    };
    // SAFETY: the mapping is `len` bytes long and nobody else knows it.
    let bytes = unsafe { std::slice::from_raw_parts_mut(address.cast::<u8>(), bench.len as usize) };
    let start = bench.spinner.mark();
    bench.buffered.read_exact_at(bytes, 0)?;
    let busy = bench.spinner.busy_since(start);
    // SAFETY: the slice is not used any more.
    unsafe { rustix::mm::munmap(address, bench.len as usize)? };
    Ok(busy)
}

fn registered_memfd(bench: &Bench) -> io::Result<u64> {
    let memfd = rustix::fs::memfd_create("bench", rustix::fs::MemfdFlags::CLOEXEC)?;
    rustix::fs::ftruncate(&memfd, bench.len)?;
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let address = unsafe {
        rustix::mm::mmap(
            ptr::null_mut(),
            bench.len as usize,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED | MapFlags::POPULATE,
            &memfd,
            0,
        )?
    };
    let mut ring = IoUring::new(16)?;
    ring.submitter().register_files(&[bench.direct.as_raw_fd()])?;
    let start = bench.spinner.mark();
    let iov = libc::iovec { iov_base: address, iov_len: bench.len as usize };
    // SAFETY: the mapping outlives the ring's use of it; it holds plain bytes.
    unsafe {
        ring.submitter().register_buffers(&[iov])?;
        ring::read_fixed(&mut ring, address as u64, bench.len, bench.len, MIB, 8)?;
    }
    let busy = bench.spinner.busy_since(start);
    drop(ring);
    // SAFETY: the ring that used the mapping is gone.
    unsafe { rustix::mm::munmap(address, bench.len as usize)? };
    Ok(busy)
}

fn read_with(bench: &Bench, chunk: u64, depth: u32) -> io::Result<u64> {
    let context = attached(bench)?;
    let mut rw = dio::ReadWrite {
        file_fd: bench.direct.as_raw_fd(),
        length: bench.len,
        chunk,
        depth,
        ..dio::ReadWrite::default()
    };
    let start = bench.spinner.mark();
    dio::read(context.as_fd(), &mut rw)?;
    let busy = bench.spinner.busy_since(start);
    whole(rw.done, bench)?;
    Ok(busy)
}

fn module_read(bench: &Bench) -> io::Result<u64> {
    read_with(bench, 0, 0)
}

fn module_read_32m(bench: &Bench) -> io::Result<u64> {
    read_with(bench, 32 * MIB, 1)
}

fn slot_with(bench: &Bench, chunk: u64, depth: u64) -> io::Result<u64> {
    let slot_len = 64 * MIB;
    let context = attached(bench)?;
    let mut ring = IoUring::new(16)?;
    ring.submitter().register_files(&[bench.direct.as_raw_fd()])?;
    let start = bench.spinner.mark();
    ring::register_slots(&mut ring, context.as_fd(), bench.len, slot_len)?;
    // SAFETY: the slots cover the attached dma-buf, which is not memory of Rust's.
    unsafe { ring::read_fixed(&mut ring, 0, slot_len, bench.len, chunk, depth)? };
    Ok(bench.spinner.busy_since(start))
}

fn slot_1m(bench: &Bench) -> io::Result<u64> {
    slot_with(bench, MIB, 8)
}

fn slot_8m(bench: &Bench) -> io::Result<u64> {
    slot_with(bench, 8 * MIB, 4)
}

fn module_load(bench: &Bench) -> io::Result<u64> {
    let context = dio::open()?;
    let mut load = dio::Load {
        file_fd: bench.direct.as_raw_fd(),
        fd_flags: (OFlags::RDWR | OFlags::CLOEXEC).bits(),
        length: bench.len,
        ..dio::Load::default()
    };
    let start = bench.spinner.mark();
    let _buffer = dio::load(context.as_fd(), &mut load)?;
    let busy = bench.spinner.busy_since(start);
    whole(load.done, bench)?;
    Ok(busy)
}

/// By `copy_file_range(2)`, which kernels without the patch series refuse.
fn copy_into(bench: &Bench, buffer: &OwnedFd) -> io::Result<u64> {
    let (mut from, mut to) = (0, 0);
    let start = bench.spinner.mark();
    while to < bench.len {
        let left = (bench.len - to) as usize;
        if rustix::fs::copy_file_range(&bench.direct, Some(&mut from), buffer, Some(&mut to), left)?
            == 0
        {
            break;
        }
    }
    let busy = bench.spinner.busy_since(start);
    whole(to, bench)?;
    Ok(busy)
}

fn copy_to_heap(bench: &Bench) -> io::Result<u64> {
    copy_into(bench, &heap_buffer(bench)?)
}

fn copy_to_udmabuf(bench: &Bench) -> io::Result<u64> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC | rustix::fs::MemfdFlags::ALLOW_SEALING;
    let memfd = rustix::fs::memfd_create("bench", flags)?;
    rustix::fs::ftruncate(&memfd, bench.len)?;
    rustix::fs::fcntl_add_seals(&memfd, rustix::fs::SealFlags::SHRINK)?;
    let device = udmabuf::open()?;
    copy_into(bench, &udmabuf::create(device.as_fd(), memfd.as_fd(), 0, bench.len)?)
}

fn heap_read(bench: &Bench) -> io::Result<u64> {
    let heap = heap::open(heap::SYSTEM)?;
    let start = bench.spinner.mark();
    let (_buffer, done) = heap::alloc_read_file(heap.as_fd(), bench.len, bench.direct.as_fd(), 0)?;
    let busy = bench.spinner.busy_since(start);
    whole(done, bench)?;
    Ok(busy)
}

fn whole(done: u64, bench: &Bench) -> io::Result<()> {
    if done == bench.len { Ok(()) } else { Err(io::Error::other(format!("only {done} bytes"))) }
}
