// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies between private memory of this process and memory that others may change or take away at
//! any moment: another process, a device, or a thread here with its own mapping.
//!
//! # Why these copies are sound, and `memcpy` is not
//!
//! An ordinary access that races with any write is undefined behaviour ([Rust reference], "data
//! races"). `ptr::copy_nonoverlapping` and the C library's `memcpy`, which the compiler treats
//! alike, are ordinary accesses, and so are volatile ones within an allocation
//! ([`ptr::read_volatile`]). Relaxed atomic accesses may race, but not with different sizes unless
//! all are reads ([`std::sync::atomic`]): two threads that copy to overlapping ranges by words would
//! have to agree on the word boundaries.
//!
//! So each copy means one relaxed access of an `AtomicU8` for each byte of the shared memory, in no
//! particular order; every access to shared memory in this crate's Rust code is one of those. C++
//! proposes the same (P1478, "byte-wise atomic memcpy"), and so does Rust RFC 3301
//! (`AtomicPerByte`). Done literally it copies a byte at a time, as the compiler does not merge
//! atomic accesses. An `asm!` block may do to memory what foreign code may ([inline assembly],
//! rules), which is whatever Rust code could have done in its place, and the compiler knows no more
//! about it than that; a processor's wider loads and stores do not tear bytes. So the blocks below
//! do what the loop of byte accesses says, eight or sixteen bytes at a time.
//!
//! Concurrent accesses by another process or a device are then like those of a thread that uses
//! such accesses: bytes may be old or new, and nothing worse can happen. System calls that take an
//! address (`pread`, `io_uring`) get raw pointers. References to shared memory exist only through
//! the `unsafe` methods of a view, whose callers promise that nothing else uses the buffer.
//!
//! # Memory that can be taken away
//!
//! Shrinking a file removes its pages from all mappings, and touching them then raises `SIGBUS`. A
//! memfd that is sealed against shrinking, and a dma-buf, whose length is fixed, are copied
//! directly. From and to everything else the kernel copies: it detects a missing page without
//! killing the process. The costs (`cost_of_each_copy_method_is_printed` below, best of five, two shared EPYC cores, virtualised):
//!
//! | | 16 bytes | 4 KiB | 1 MiB |
//! |---|---|---|---|
//! | `memcpy` | 5 ns | 0.6 µs | 106 µs |
//! | directly | 8 ns | 0.2 µs | 50 µs |
//! | by the kernel | 1.3 µs | 1.9 µs | 112 to 163 µs |
//! | by the kernel, where it needs a pipe | 8.6 µs | 8.9 µs | 314 µs |
//!
//! [Rust reference]: https://doc.rust-lang.org/reference/behavior-considered-undefined.html
//! [inline assembly]: https://doc.rust-lang.org/reference/inline-assembly.html#rules-for-inline-assembly
//! [`ptr::read_volatile`]: std::ptr::read_volatile

use std::os::fd::AsFd;

use rustix::io::Errno as Os;

use super::page::page_size;
use super::raw;

/// Copies `len` bytes, like a relaxed atomic access to each of them.
///
/// # Safety
///
/// `from` is valid for reads and `to` for writes of `len` bytes, and they do not overlap. One of
/// them is private memory of this process that nothing else accesses during the call; the other may
/// be accessed concurrently in any way, but not unmapped.
#[cfg(all(target_arch = "x86_64", not(any(miri, sanitized))))]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the block reads and writes the bytes that the caller vouches for. The direction flag
    // is clear, as the ABI requires.
    unsafe {
        std::arch::asm!(
            "rep movsq",
            "mov rcx, {rest}",
            "rep movsb",
            rest = in(reg) len % 8,
            inout("rcx") len / 8 => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags),
        );
    }
}

/// The rules are the same as for x86-64.
///
/// # Safety
///
/// As there.
#[cfg(all(target_arch = "aarch64", not(any(miri, sanitized))))]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the block reads and writes the bytes that the caller vouches for.
    unsafe {
        std::arch::asm!(
            "cbz {pairs}, 3f",
            "2:",
            "ldp {a}, {b}, [{from}], #16",
            "stp {a}, {b}, [{to}], #16",
            "subs {pairs}, {pairs}, #1",
            "b.ne 2b",
            "3:",
            "cbz {rest}, 5f",
            "4:",
            "ldrb {a:w}, [{from}], #1",
            "strb {a:w}, [{to}], #1",
            "subs {rest}, {rest}, #1",
            "b.ne 4b",
            "5:",
            pairs = inout(reg) len / 16 => _,
            rest = inout(reg) len % 16 => _,
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            a = out(reg) _,
            b = out(reg) _,
            options(nostack),
        );
    }
}

/// The portable definition, for other processors, and for Miri and sanitizers, which do not look into
/// the blocks above.
///
/// # Safety
///
/// As there.
#[cfg(any(miri, sanitized, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    use std::sync::atomic::{AtomicU8, Ordering};
    for at in 0..len {
        // SAFETY: the byte is within what the caller vouches for, and every pointer is aligned to
        // one byte. For reading, the cast to a mutable pointer is only a formality.
        unsafe {
            let byte = AtomicU8::from_ptr(from.add(at).cast_mut()).load(Ordering::Relaxed);
            AtomicU8::from_ptr(to.add(at)).store(byte, Ordering::Relaxed);
        }
    }
}

/// Selects the pointer of a copy that is the shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shared {
    From,
    To,
}

/// Copies through the kernel, which detects missing pages of the shared memory.
///
/// # Errors
///
/// `EFAULT`: pages are missing. `EMFILE` and the like, where the kernel needs a pipe.
///
/// # Safety
///
/// As for [`copy`], except that pages of the shared memory's mapping may be missing.
pub(crate) unsafe fn copy_by_kernel(
    from: *const u8,
    to: *mut u8,
    len: usize,
    shared: Shared,
) -> rustix::io::Result<()> {
    // SAFETY: passed on.
    match unsafe { copy_as_other_process(from, to, len, shared) } {
        // Forbidden or missing, as in many containers.
        // SAFETY: passed on.
        Err(Os::PERM | Os::NOSYS | Os::ACCESS) => unsafe { copy_by_pipe(from, to, len) },
        result => result,
    }
}

/// Copies with the call for copies between processes; both are this one. The kernel pins the side
/// called remote and accesses the local side with fault handling, so the latter is the shared side:
/// pages that cannot be pinned, such as those of devices, are no problem there.
///
/// # Safety
///
/// As for [`copy_by_kernel`].
unsafe fn copy_as_other_process(
    from: *const u8,
    to: *mut u8,
    len: usize,
    shared: Shared,
) -> rustix::io::Result<()> {
    let process = rustix::process::getpid().as_raw_nonzero().get();
    let mut done = 0;
    while done < len {
        let vector = |start: *mut u8| libc::iovec {
            iov_base: start.wrapping_add(done).cast(),
            iov_len: len - done,
        };
        let (from, to) = (vector(from.cast_mut()), vector(to));
        // SAFETY: the caller vouches for both ranges; the rest of them is copied.
        let copied = unsafe {
            match shared {
                Shared::From => {
                    libc::process_vm_writev(process, &raw const from, 1, &raw const to, 1, 0)
                }
                Shared::To => {
                    libc::process_vm_readv(process, &raw const to, 1, &raw const from, 1, 0)
                }
            }
        };
        match raw::result(copied) {
            Ok(0) => return Err(Os::FAULT),
            Ok(copied) => done += copied,
            Err(Os::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Copies through a pipe, with only two system calls, which are always allowed.
///
/// # Safety
///
/// As for [`copy_by_kernel`].
unsafe fn copy_by_pipe(from: *const u8, to: *mut u8, len: usize) -> rustix::io::Result<()> {
    let (out, into) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    // Every pipe has room for this, so nothing blocks.
    let room = page_size() as usize;
    let mut done = 0;
    while done < len {
        let piece = room.min(len - done);
        // SAFETY: the piece is in the range that the caller vouches for.
        let written = unsafe { raw::write(into.as_fd(), from.add(done), piece) }?;
        let mut read = 0;
        while read < written {
            // SAFETY: as above.
            let result = unsafe { raw::read(out.as_fd(), to.add(done + read), written - read) };
            read += result?;
        }
        done += written;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    type Copy = unsafe fn(*const u8, *mut u8, usize);

    /// All methods; here each has exclusive use of the memory.
    const WAYS: [Copy; 4] = [
        copy,
        // SAFETY: the test's arguments meet the requirements of the callee.
        |from, to, len| unsafe { between_processes(from, to, len, Shared::From) },
        // SAFETY: as above.
        |from, to, len| unsafe { between_processes(from, to, len, Shared::To) },
        // SAFETY: as above.
        |from, to, len| unsafe { copy_by_pipe(from, to, len).expect("copied") },
    ];

    /// Not every kernel has the call.
    fn is_missing(result: rustix::io::Result<()>) -> bool {
        matches!(result, Err(Os::NOSYS | Os::PERM))
    }

    /// # Safety
    ///
    /// As for [`copy`].
    unsafe fn between_processes(from: *const u8, to: *mut u8, len: usize, shared: Shared) {
        // SAFETY: the caller's promise.
        let result = unsafe { copy_as_other_process(from, to, len, shared) };
        if is_missing(result) {
            // SAFETY: as above.
            unsafe { copy(from, to, len) };
        } else {
            result.expect("copied");
        }
    }

    #[test]
    fn copies_of_any_length_and_alignment_are_exact() {
        let source: Vec<u8> = (0..9000_u32).map(|at| (at * 7 + at / 251) as u8).collect();
        for way in WAYS {
            for len in (0..70).chain([127, 128, 4095, 4096, 4097, 8191]) {
                for (from, to) in [(0, 0), (1, 0), (0, 3), (7, 9), (8, 8), (15, 1)] {
                    let mut target = vec![0xa5; len + to + 64];
                    // SAFETY: both ranges lie in the vectors.
                    unsafe { way(source.as_ptr().add(from), target.as_mut_ptr().add(to), len) };
                    assert!(target[..to].iter().all(|byte| *byte == 0xa5), "before {len}");
                    assert_eq!(target[to..to + len], source[from..from + len], "{len}");
                    assert!(target[to + len..].iter().all(|byte| *byte == 0xa5), "after {len}");
                }
            }
        }
    }

    #[test]
    fn copying_unmapped_memory_is_an_error() {
        let missing = 4096 as *mut u8;
        let mut own = [7; 100];
        for shared in [Shared::From, Shared::To] {
            let own = own.as_mut_ptr();
            let (from, to) = if shared == Shared::From { (missing, own) } else { (own, missing) };
            // SAFETY: nothing is ever mapped at the lowest addresses, and the other is an array.
            unsafe {
                let result = copy_as_other_process(from, to, 100, shared);
                assert!(result == Err(Os::FAULT) || is_missing(result), "{result:?}");
                assert_eq!(copy_by_pipe(from, to, 100), Err(Os::FAULT));
                assert_eq!(copy_by_kernel(from, to, 100, shared), Err(Os::FAULT));
            }
        }
        assert_eq!(own, [7; 100]);
    }

    /// Bytes are old or new, whatever the adjacent bytes are.
    #[test]
    fn concurrent_copies_keep_adjacent_bytes() {
        let memory = crate::memory::Mapping::anonymous(4096).expect("memory");
        memory.fill(0, 4096, 0).expect("zeroed");
        let (stop, place) = (AtomicBool::new(false), memory.as_ptr() as usize);
        std::thread::scope(|scope| {
            for (skip, byte) in [(0, 1_u8), (5, 2)] {
                let stop = &stop;
                scope.spawn(move || {
                    let bytes = [byte; 3000];
                    while !stop.load(Ordering::Relaxed) {
                        // SAFETY: the range lies in the memory, which others access in the same
                        // way.
                        unsafe { copy(bytes.as_ptr(), (place + skip) as *mut u8, bytes.len()) };
                    }
                });
            }
            let mut most = 0;
            for _ in 0..2000 {
                let mut seen = [9; 3005];
                // SAFETY: as above.
                unsafe { copy(place as *const u8, seen.as_mut_ptr(), seen.len()) };
                most = most.max(seen.into_iter().max().unwrap_or(9));
            }
            stop.store(true, Ordering::Relaxed);
            assert!(most <= 2, "{most}");
        });
    }

    #[test]
    #[ignore = "a measurement: what each way costs"]
    fn cost_of_each_copy_method_is_printed() {
        const ALL: usize = 256 << 20;
        let ways: [(&str, Copy); 5] = [
            // SAFETY: the arguments for the other methods suit this one, too.
            ("memcpy", |from, to, len| unsafe { from.copy_to_nonoverlapping(to, len) }),
            ("directly", WAYS[0]),
            ("from, by the kernel", WAYS[1]),
            ("to, by the kernel", WAYS[2]),
            ("by a pipe", WAYS[3]),
        ];
        let buf = crate::buffer::shared::Shared::memfd(ALL as u64).expect("a memfd");
        let mapping = buf.mapping(true).expect("mapped");
        mapping.fill(0, ALL as u64, 1).expect("allocated");
        for (name, way) in ways {
            for len in [16, 4096, 1 << 20] {
                let mut own = vec![2; len];
                let rounds = (ALL / len).min(1 << 14);
                let best = (0..5).map(|_| {
                    let begin = std::time::Instant::now();
                    for at in (0..rounds).map(|round| round * len) {
                        // SAFETY: both ranges lie in memory that belongs to this test.
                        unsafe { way(mapping.at(at as u64), own.as_mut_ptr(), len) };
                    }
                    begin.elapsed().as_secs_f64() / rounds as f64
                });
                let best = best.fold(f64::MAX, f64::min);
                let rate = len as f64 / best / 1e9;
                println!("{name}: {len} bytes: {:.0} ns, {rate:.2} GB/s", best * 1e9);
            }
        }
    }
}
