// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptors of everything, made once. Their bytes are put back before an input that follows one
//! which has changed them.

use std::fs::File;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, IntoRawFd, OwnedFd};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::PathBuf;

use dmabuf_dio_sys::{dio, heap, udmabuf};
use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create,
};

use super::domain::{BUFFER, FILE, FIRST_FILE, THINGS};
use super::system;
use crate::buffer::odd_buffer;
use crate::fence::vgem_buffer;
use crate::machine::Machine;
use crate::mapping::Mapping;
use crate::pages::stamp;

/// A number that no descriptor has.
const CLOSED: i32 = 900;

pub(crate) struct Pool {
    /// By place, -1 if this kernel has none.
    pub(crate) fds: Vec<i32>,
    /// All of this is the one file that several descriptors have.
    pub(crate) file: File,
    hole: File,
    memfd: OwnedFd,
    file_bytes: Vec<u8>,
    buffers: Vec<(Mapping, Vec<u8>)>,
}

fn memfd(huge: bool, fill: bool) -> Result<OwnedFd, String> {
    let failed = |errno| format!("memfd: {errno}");
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let (flags, length) =
        if huge { (flags | MemfdFlags::HUGETLB, 2 << 20) } else { (flags, BUFFER) };
    let fd = memfd_create("fuzz", flags).map_err(failed)?;
    ftruncate(&fd, length).map_err(failed)?;
    if huge {
        Mapping::whole(fd.as_fd(), length as usize, true)?.store(0, &stamp(5, 0, length as usize));
    } else if fill {
        rustix::io::pwrite(&fd, &stamp(6, 0, length as usize), 0).map_err(failed)?;
    } else {
        fallocate(&fd, FallocateFlags::empty(), 0, length).map_err(failed)?;
    }
    fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW).map_err(failed)?;
    Ok(fd)
}

/// A buffer of the heap that is open in any way.
fn of_heap(heap: &OwnedFd, flags: i32) -> Option<OwnedFd> {
    let fd_flags = (flags | libc::O_CLOEXEC) as u32;
    let mut data = heap::Allocation { len: BUFFER, fd_flags, ..heap::Allocation::default() };
    let address = &raw mut data as u64;
    system::ioctl(heap.as_raw_fd(), u64::from(heap::IOC_ALLOC), address).ok()?;
    // SAFETY: the call succeeded and returned a new descriptor, which nothing else owns.
    Some(unsafe { OwnedFd::from_raw_fd(data.fd as i32) })
}

fn loaded(file: &File, flags: i32) -> Result<OwnedFd, String> {
    let context = dio::open().map_err(|errno| format!("a context: {errno}"))?;
    let fd_flags = (flags | libc::O_CLOEXEC) as u32;
    let length = BUFFER - 100;
    let mut load =
        dio::Load { file_fd: file.as_raw_fd(), fd_flags, length, ..dio::Load::default() };
    dio::load(context.as_fd(), &mut load).map_err(|errno| format!("LOAD: {errno}"))
}

impl Pool {
    fn put(&mut self, name: &str, fd: Option<impl IntoRawFd>) {
        if let (Some(fd), Some(place)) = (fd, THINGS.iter().position(|thing| *thing == name)) {
            self.fds[place] = fd.into_raw_fd();
        }
    }

    pub(crate) fn create(machine: &Machine) -> Result<Self, String> {
        let path = machine.folder.join("fuzz-file");
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        let open = |path: &PathBuf, read: bool, write: bool, flags: i32| {
            File::options().read(read).write(write).custom_flags(flags).open(path)
        };
        let new = |path: &PathBuf| {
            File::options().read(true).write(true).create(true).truncate(true).open(path)
        };
        let file = new(&path).map_err(failed)?;
        let hole_path = path.with_extension("hole");
        let hole = new(&hole_path).map_err(failed)?;
        let own = memfd_create("fuzz-own", MemfdFlags::CLOEXEC);
        let own = own.map_err(|errno| format!("memfd: {errno}"))?;
        let mut pool = Self {
            fds: vec![-1; THINGS.len()],
            file: file.try_clone().map_err(failed)?,
            hole: hole.try_clone().map_err(failed)?,
            memfd: own.try_clone().map_err(failed)?,
            file_bytes: stamp(1, 0, FILE as usize),
            buffers: Vec::new(),
        };
        pool.reset();
        if let Some(heap) = &machine.heap {
            pool.put("heap", of_heap(heap, libc::O_RDWR));
            pool.put("heap-read-only", of_heap(heap, libc::O_RDONLY));
            pool.put("heap-write-only", of_heap(heap, libc::O_WRONLY));
        }
        pool.put_memfds(machine)?;
        pool.put("vgem", vgem_buffer().ok().map(|(_, _, buffer)| buffer));
        if let Some(device) = &machine.odd {
            for (name, oddities) in
                [("odd", 0), ("odd-uncounted", 1), ("odd-reserved", 2), ("odd-unmapped", 16)]
            {
                pool.put(name, odd_buffer(device, 16, oddities));
            }
        }
        pool.put("loaded", Some(loaded(&file, libc::O_RDWR)?));
        pool.put("loaded-read-only", Some(loaded(&file, libc::O_RDONLY)?));
        pool.put("direct", open(&path, true, true, libc::O_DIRECT).ok());
        pool.put("append", open(&path, true, true, libc::O_APPEND).ok());
        pool.put("read-only", open(&path, true, false, 0).ok());
        pool.put("write-only", open(&path, false, true, 0).ok());
        pool.put("path", open(&path, true, false, libc::O_PATH).ok());
        pool.put("file", Some(file));
        pool.put("hole", Some(hole));
        pool.put("memfd-own", Some(own));
        for path in [&path, &hole_path] {
            std::fs::remove_file(path).map_err(failed)?;
        }
        if let Ok(disk) = std::env::var("DMABUF_DIO_RAW_DISK").map(PathBuf::from) {
            pool.put("disk", open(&disk, true, true, 0).ok());
            pool.put("disk-direct", open(&disk, true, true, libc::O_DIRECT).ok());
        }
        pool.put("proc", File::open("/proc/version").ok());
        pool.put("folder", File::open("/proc").ok());
        let (reader, writer) = rustix::pipe::pipe().map_err(|errno| format!("a pipe: {errno}"))?;
        // As the only end, reading it ends at once.
        drop(writer);
        pool.put("pipe", Some(reader));
        pool.put("socket", std::os::unix::net::UnixDatagram::unbound().ok());
        pool.put("null", open(&"/dev/null".into(), true, true, 0).ok());
        pool.put("closed", Some(Number(CLOSED)));
        pool.map_buffers();
        pool.reset();
        Ok(pool)
    }

    /// Also udmabufs over them
    fn put_memfds(&mut self, machine: &Machine) -> Result<(), String> {
        let mut udmabuf = |name: &str, memfd: OwnedFd, kept: &str| {
            let over = machine
                .udmabuf
                .as_ref()
                .and_then(|device| udmabuf::create(device.as_fd(), memfd.as_fd(), 0, BUFFER).ok());
            self.put(name, over);
            if !kept.is_empty() {
                self.put(kept, Some(memfd));
            }
        };
        udmabuf("udmabuf", memfd(false, true)?, "memfd");
        udmabuf("udmabuf-unfilled", memfd(false, false)?, "memfd-unfilled");
        if machine.huge {
            udmabuf("udmabuf-huge", memfd(true, true)?, "");
        }
        Ok(())
    }

    /// For the bytes; what cannot be mapped keeps those that it has.
    fn map_buffers(&mut self) {
        for (place, fd) in self.fds[..FIRST_FILE].iter().enumerate() {
            // A file of pages that nobody has filled stays so, and others must not be touched.
            let known = !THINGS[place].starts_with("odd-") && THINGS[place] != "udmabuf-unfilled";
            if *fd >= 0 && known {
                // SAFETY: the pool never closes its descriptors.
                let fd = unsafe { BorrowedFd::borrow_raw(*fd) };
                if let Ok(map) = Mapping::of(fd, BUFFER as usize, true) {
                    self.buffers.push((map, stamp(20 + place as u64, 0, BUFFER as usize)));
                }
            }
        }
    }

    /// Puts the bytes back.
    pub(crate) fn reset(&self) {
        let _ = self.file.set_len(FILE);
        let _ = self.file.write_all_at(&self.file_bytes, 0);
        for (file, length) in [(self.hole.as_fd(), 1 << 20), (self.memfd.as_fd(), BUFFER)] {
            let _ = ftruncate(file, 0);
            let _ = ftruncate(file, length);
        }
        for (map, bytes) in &self.buffers {
            map.store(0, bytes);
        }
    }
}

/// A descriptor's number without a descriptor.
struct Number(i32);

impl IntoRawFd for Number {
    fn into_raw_fd(self) -> i32 {
        self.0
    }
}
