// SPDX-License-Identifier: MIT OR Apache-2.0
//! The dma-buf as a buffer that `io_uring` registers itself, for a raw block device: proposed for Linux
//! (`dmabuf_dio_sys::regbuf`).
//!
//! The disk's driver imports the dma-buf as any device does. So there is no CPU access around its requests,
//! and nobody takes turns with others who do file I/O on the buffer.

use std::os::fd::BorrowedFd;

use io_uring::IoUring;

use super::attempt::Attempt;
use super::driver::Driver;
use super::{Backend, refuse, system_heap};
use crate::buf::DmaBuf;
use crate::direction::Direction;
use crate::errno::Errno;
use crate::error::{Error, Result};
use crate::file::extent::Extent;
use crate::kind::Kind;
use crate::lend::{LendError, Memory, Ring, registers_dma_bufs};
use crate::transfer::ring::{Buffer, run};
use crate::transfer::task::{Fresh, Task, Transferred};
use crate::transfer::{Job, Progress, edge};

/// Who fills the ring's table.
pub(super) struct Registered {
    /// Whether it can, on this kernel.
    able: fn() -> Result<(), Errno>,
    /// Registers a buffer for requests on a file.
    register: fn(&mut IoUring, &DmaBuf, BorrowedFd<'_>, Direction) -> Result<Memory, LendError>,
}

/// The kernel.
pub(super) static BY_KERNEL: Registered = Registered {
    able: registers_dma_bufs,
    register: |uring, buf, file, _| Memory::registered_dma_buf(uring, buf, file),
};

impl Driver for Registered {
    fn backend(&self) -> Backend {
        Backend::Registered
    }

    /// Loads into a new buffer of the system heap.
    fn load(&self, task: &Task<'_>, _: Kind) -> Result<Fresh, Attempt> {
        // Checked first, so that a refusal costs no allocation.
        self.check(task)?;
        system_heap::load(self, task)
    }

    /// Transfers between a block device and a range of an existing buffer.
    fn transfer(
        &self,
        task: &Task<'_>,
        buf: &DmaBuf,
        extent: Extent,
    ) -> Result<Transferred, Attempt> {
        self.check(task)?;
        if task.direction == Direction::Load && !buf.is_writable() {
            return Err(Error::ReadOnlyBuffer.into());
        }
        let mut uring = refuse::ring(Backend::Registered, task.depth(), false)?;
        let memory = (self.register)(&mut uring, buf, task.file.fd(), task.direction);
        let mut ring = Ring::new(uring, memory.map_err(|error| refused(&error))?);
        let mut core = |job: &Job<'_>| run(&mut ring, job, &mut Whole(buf.len()));
        let mut edge = |part: Extent| edge(task, buf, part);
        Ok(task.in_parts(extent, &mut core, &mut edge)?)
    }

    fn try_out(&self) -> Result<String, Attempt> {
        (self.able)().map_err(unable)?;
        Ok("between raw block devices whose driver imports dma-bufs (NVMe) and dma-bufs".into())
    }
}

impl Registered {
    fn check(&self, task: &Task<'_>) -> Result<(), Attempt> {
        (self.able)().map_err(unable)?;
        if task.file.is_device() && task.file.is_direct() {
            return Ok(());
        }
        let refusal = Backend::Registered.refuse(format!(
            "io_uring registers dma-bufs for block devices that are open with O_DIRECT only, and {} is none",
            task.file.path.display()
        ));
        Err(refusal.remedy(MODULE).into())
    }
}

const KERNEL: &str =
    "no released kernel does; the backend module needs no such kernel: sudo modprobe dmabuf_dio";
const MODULE: &str = "use the backend module: sudo modprobe dmabuf_dio";

fn unable(errno: Errno) -> Attempt {
    let reason = match errno.raw() {
        libc::EINVAL => "this kernel's io_uring does not register dma-bufs itself",
        libc::EOPNOTSUPP => "this kernel is built without dma-bufs for io_uring",
        _ => "io_uring cannot be asked whether it registers dma-bufs itself",
    };
    Backend::Registered.refuse(reason).errno(errno).remedy(KERNEL).into()
}

fn refused(error: &LendError) -> Attempt {
    match error {
        LendError::Slot { errno, .. } => {
            let reason = match errno.raw() {
                libc::EOPNOTSUPP => "the disk's driver does not import dma-bufs".to_owned(),
                _ => error.to_string(),
            };
            Backend::Registered.refuse(reason).errno(*errno).remedy(MODULE).into()
        }
        error => refuse::lending(Backend::Registered, error),
    }
}

/// Moves less than a block by the CPU.
fn edge(task: &Task<'_>, buf: &DmaBuf, part: Extent) -> Result<u64> {
    match task.direction {
        Direction::Load => {
            let view = buf.map_shared()?;
            let direct = edge::edge(task, view.mapping(), part)?;
            view.finish()?;
            Ok(direct)
        }
        Direction::Save => {
            let view = buf.map()?;
            let direct = edge::edge(task, view.mapping(), part)?;
            view.finish()?;
            Ok(direct)
        }
    }
}

/// A buffer of that length, the only one of its ring.
struct Whole(u64);

impl Buffer for Whole {
    fn prepare(&mut self, _: &Ring, _: u64, _: Progress) -> Result<bool> {
        Ok(true)
    }

    fn place(&self, offset: u64) -> (u16, u64, u64) {
        (0, offset, self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::control::Watch;
    use crate::file::{File, Spec};
    use crate::lend::Attached;
    use crate::options::Options;

    /// The module in the kernel's place, which registers the same ranges for any file: what is left are the
    /// requests.
    static BY_MODULE: Registered = Registered {
        able: || Ok(()),
        register: |uring, buf, _, direction| {
            let attached = Attached::new(buf)?;
            Memory::lend(uring, [(&attached, 0, buf.len())], direction)
        },
    };

    fn with_task<T>(
        path: &Path,
        direction: Direction,
        (offset, length): (u64, u64),
        test: impl FnOnce(&Task<'_>) -> T,
    ) -> T {
        let file = File::open(&Spec::Path(path.to_owned()), direction, true).expect("open");
        let options = Options::default();
        let watch = Watch::start(&options.control, length);
        test(&Task { file: &file, direction, offset, length, options: &options, watch: &watch })
    }

    fn refusal<T: std::fmt::Debug>(result: Result<T, Attempt>) -> super::super::Refusal {
        match result {
            Err(Attempt::Refused(refusal)) => refusal,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_missing_is_told_before_anything_is_allocated() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        for (errno, words) in [
            (libc::EINVAL, "does not register"),
            (libc::EOPNOTSUPP, "built without"),
            (libc::EPERM, "cannot be asked"),
        ] {
            let told = refusal::<()>(Err(unable(Errno::from_raw(errno))));
            assert!(told.reason.contains(words), "{told}");
            assert_eq!(
                (told.backend, told.errno),
                (Backend::Registered, Some(Errno::from_raw(errno)))
            );
        }
        with_task(file.path(), Direction::Load, (0, 1), |task| {
            // No kernel that this runs on can.
            let told = refusal(BY_KERNEL.load(task, Kind::DmaBuf));
            assert!(
                told.remedy.is_some_and(|remedy| remedy.contains("modprobe")),
                "{}",
                told.reason
            );
            let told = refusal(BY_MODULE.load(task, Kind::DmaBuf));
            assert!(told.reason.contains("block devices"), "{told}");
        });
        for (errno, words) in [(libc::EOPNOTSUPP, "driver does not"), (libc::ENOMEM, "of 9 bytes")]
        {
            let errno = Errno::from_raw(errno);
            let error = LendError::Slot { what: "io_uring refuses", index: 0, length: 9, errno };
            let told = refusal::<()>(Err(refused(&error)));
            assert!(told.reason.contains(words) && told.errno == Some(errno), "{told}");
        }
    }

    const LEN: usize = 24 << 20;

    /// Every byte, on the guest's raw disk.
    #[test]
    fn ranges_of_a_disk_are_loaded_and_saved() {
        let Some(disk) = std::env::var_os("DMABUF_DIO_RAW_DISK").map(PathBuf::from) else {
            println!("skipped: no DMABUF_DIO_RAW_DISK");
            return;
        };
        if let Err(errno) = crate::lend::Context::with_slots() {
            println!("skipped: {errno}");
            return;
        }
        // Debian's kernels for arm64 have no heap to load into.
        if let Err(refusal) = system_heap::open(Backend::Registered) {
            println!("skipped: {}", refusal.reason);
            return;
        }
        let page = rustix::param::page_size() as u64;
        let mut content: Vec<u8> =
            (0..LEN as u64).map(|at| (at * 31 % 253) as u8 ^ (at >> 12) as u8).collect();
        std::fs::OpenOptions::new()
            .write(true)
            .open(&disk)
            .expect("open")
            .write_all(&content)
            .expect("written");
        let within = |bytes: &[u8], (offset, length): (u64, u64)| {
            bytes[offset as usize..][..length as usize].to_vec()
        };
        for range in [(0, LEN as u64), (4096, 16 << 20), (511, 9_000_001), (100, 50), (700, 12_288)]
        {
            let loaded =
                with_task(&disk, Direction::Load, range, |task| BY_MODULE.load(task, Kind::DmaBuf));
            let Fresh { buf, moved } = loaded.expect("loaded");
            let start = range.0 % page;
            let bytes = buf.map().expect("map").to_vec().expect("bytes");
            assert!(within(&bytes, (start, range.1)) == within(&content, range), "{range:?}");
            assert!(
                bytes[..start as usize]
                    .iter()
                    .chain(&bytes[(start + range.1) as usize..])
                    .all(|byte| *byte == 0)
            );
            // The page in which the range begins was requested, too.
            assert!((range.1..range.1 + page).contains(&moved.direct), "{range:?}: {moved:?}");
        }
        let mut buf = DmaBuf::alloc(8 << 20).expect("a buffer");
        let new: Vec<u8> = (0..8 << 20_u32).map(|at| (at % 249) as u8).collect();
        buf.map_mut().expect("map").write_at(0, &new).expect("written");
        for (file, start, len) in
            [(1 << 20, 0, 8 << 20), (5000, 5000 % page, 100_000), (9_000_777, 777, 3)]
        {
            let extent = Extent { file, buf: start, len };
            with_task(&disk, Direction::Save, (file, len), |task| {
                BY_MODULE.transfer(task, &buf, extent)
            })
            .expect("saved");
            content[file as usize..][..len as usize]
                .copy_from_slice(&new[start as usize..][..len as usize]);
        }
        let mut found = vec![0; LEN];
        let mut file = std::fs::File::open(&disk).expect("open");
        file.seek(SeekFrom::Start(0)).expect("seek");
        file.read_exact(&mut found).expect("read");
        assert!(found == content);
    }
}
