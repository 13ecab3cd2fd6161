// SPDX-License-Identifier: MIT OR Apache-2.0
//! The objects of a round by their places, and what is known of their bytes.

use std::ops::Range;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::rc::Rc;

use dmabuf_dio_sys::dmabuf::{Access, begin_cpu_access, end_cpu_access};

use crate::disk::Disk;
use crate::fault::Armed;
use crate::fence::Fence;
use crate::file::Known;
use crate::library::held::Held;
use crate::library::kept::Keeping;
use crate::library::saved::Saved;
use crate::machine::Machine;
use crate::mapping::Mapping;
use crate::pages::{PAGE, Page, bytes, difference};
use crate::ring::Ring;

pub(crate) type Outcome = Result<(), String>;

pub(crate) const STORES: usize = 3;
pub(crate) const BUFFERS: usize = 6;
/// The last is the disk.
pub(crate) const FILES: usize = 4;
pub(crate) const DISK: u64 = FILES as u64 - 1;
pub(crate) const SLOTS: usize = 3;
pub(crate) const DEVICES: usize = 2;
/// Buffers that the library has loaded
pub(crate) const HELD: usize = 3;

/// A memfd; `None`: a hole, or allocated and not filled.
#[allow(clippy::struct_excessive_bools)] // independent of each other
pub(crate) struct Store {
    pub(crate) fd: OwnedFd,
    pub(crate) pages: Vec<Option<Page>>,
    /// Of each page: is it dirty, so that memory pressure cannot drop it?
    pub(crate) dirty: Vec<bool>,
    /// `fallocate()` has left pages that nobody has filled.
    pub(crate) allocated: bool,
    /// It may have huge pages.
    pub(crate) collapsed: bool,
    /// Of hugetlb: written by mappings only, and never paged out.
    pub(crate) huge: bool,
    /// Nobody may write to it any more, but buffers that have its pages.
    pub(crate) sealed: bool,
}

impl Store {
    /// Reads it as a file, which fills no holes.
    pub(crate) fn check(&self) -> Outcome {
        let mut actual = vec![0; self.pages.len() * PAGE];
        let mut done = 0;
        while done < actual.len() {
            let read = rustix::io::pread(&self.fd, &mut actual[done..], done as u64)
                .map_err(|errno| format!("pread of a memfd: {errno}"))?;
            if read == 0 {
                return Err("the memfd is short".into());
            }
            done += read;
        }
        for (place, page) in self.pages.iter().enumerate() {
            let expected = page.as_ref().map_or([0; PAGE], |page| *page.borrow());
            let actual = &actual[place * PAGE..(place + 1) * PAGE];
            difference("the memfd", actual, &expected)
                .map_err(|why| format!("page {place}: {why}"))?;
        }
        Ok(())
    }
}

/// Who makes a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Heap,
    Load,
    Udmabuf {
        /// Some page may not have been filled.
        allocated: bool,
        collapsed: bool,
        /// Some page may be clean. What the CPU stores through the udmabuf is lost there.
        clean: bool,
    },
    /// Of `kernel/sim/odd_exporter`; whether its pages may be lent.
    Odd {
        lent: bool,
    },
}

/// A buffer. What it holds is compared while it is mapped.
pub(crate) struct Buffer {
    pub(crate) kind: Kind,
    pub(crate) fd: Option<OwnedFd>,
    pub(crate) map: Option<Mapping>,
    pub(crate) context: Option<OwnedFd>,
    pub(crate) pages: Vec<Page>,
    pub(crate) writable: bool,
    /// A device has it, which works on a copy.
    pub(crate) imported: bool,
}

impl Buffer {
    pub(crate) fn length(&self) -> usize {
        self.pages.len() * PAGE
    }

    /// Looks at the memory while no device has newer data.
    pub(crate) fn synchronised<T>(&self, look: impl FnOnce() -> T) -> Result<T, String> {
        let Some(fd) = self.fd.as_ref().filter(|_| self.imported) else { return Ok(look()) };
        let failed = |errno| format!("DMA_BUF_IOCTL_SYNC: {errno}");
        begin_cpu_access(fd.as_fd(), Access::Read).map_err(failed)?;
        let seen = look();
        end_cpu_access(fd.as_fd(), Access::Read).map_err(failed)?;
        Ok(seen)
    }

    /// What a mapping shows, if there is one.
    pub(crate) fn seen(&self) -> Result<Option<Vec<u8>>, String> {
        self.map.as_ref().map(|map| self.synchronised(|| map.bytes())).transpose()
    }

    pub(crate) fn check(&self) -> Outcome {
        match &self.map {
            Some(map) => {
                let actual = self.synchronised(|| map.bytes())?;
                difference("the buffer", &actual, &bytes(&self.pages, 0..self.length()))
            }
            None => Ok(()),
        }
    }
}

/// A fixed buffer of the ring.
pub(crate) struct Slot {
    pub(crate) pages: Vec<Page>,
    pub(crate) length: usize,
    pub(crate) flags: u64,
}

/// What waits while transfers run at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stalled {
    /// All that concerns the disk
    Disk,
    /// What writes to files: their file system is frozen.
    Files,
}

/// A device that has a buffer.
pub(crate) struct Device {
    pub(crate) importer: std::fs::File,
    pub(crate) pages: Vec<Page>,
}

/// Everything that a round has. Dropping it gives all of it back.
pub(crate) struct World<'a> {
    pub(crate) machine: &'a Machine,
    pub(crate) buffers: [Option<Buffer>; BUFFERS],
    pub(crate) slots: [Option<Slot>; SLOTS],
    pub(crate) devices: [Option<Device>; DEVICES],
    pub(crate) ring: Option<Ring>,
    pub(crate) stores: [Option<Store>; STORES],
    pub(crate) files: [Option<Known>; FILES],
    pub(crate) held: [Option<Held>; HELD],
    /// Files with names
    pub(crate) saved: Saved,
    pub(crate) keeping: Option<Keeping>,
    /// The context of loads.
    pub(crate) loader: Option<OwnedFd>,
    /// After the files, as one is open on it.
    pub(crate) disk: Option<Disk>,
    pub(crate) armed: Armed,
    /// Of the next transfer.
    pub(crate) fence: Option<Fence>,
    /// What is done beside the next transfer: its kind, and the place of a memfd or a buffer.
    pub(crate) beside: Option<(u64, u64)>,
    /// What gets no answer during the next transfers that run at the same time.
    pub(crate) stalled: Option<Stalled>,
}

impl<'a> World<'a> {
    pub(crate) fn new(machine: &'a Machine) -> Result<Self, String> {
        let disk = Disk::create();
        let mut files = [const { None }; FILES];
        if let Some(disk) = &disk {
            files[DISK as usize] = Some(Known::on_disk(&disk.path, crate::disk::SIZE)?);
        }
        Ok(Self {
            machine,
            buffers: [const { None }; BUFFERS],
            slots: [const { None }; SLOTS],
            devices: [const { None }; DEVICES],
            ring: None,
            stores: [const { None }; STORES],
            files,
            held: [const { None }; HELD],
            saved: Saved::create(&machine.folder)?,
            keeping: None,
            loader: None,
            disk,
            armed: Armed::Nothing,
            fence: None,
            beside: None,
            stalled: None,
        })
    }

    /// A buffer that files can be moved to and from, with its context.
    pub(crate) fn attached(&self, place: u64) -> Option<(&Buffer, BorrowedFd<'_>)> {
        let buffer = self.buffers.get(place as usize)?.as_ref()?;
        Some((buffer, buffer.context.as_ref()?.as_fd()))
    }

    pub(crate) fn file(&self, place: u64) -> Option<&Known> {
        self.files.get(place as usize)?.as_ref()
    }

    pub(crate) fn file_mut(&mut self, place: u64) -> Option<&mut Known> {
        self.files.get_mut(place as usize)?.as_mut()
    }

    pub(crate) fn store_mut(&mut self, place: u64) -> Option<&mut Store> {
        self.stores.get_mut(place as usize)?.as_mut()
    }

    /// The part of a file that fails.
    pub(crate) fn broken(&self, file: u64) -> Range<usize> {
        match &self.disk {
            Some(disk) if file == DISK => disk.broken.clone(),
            _ => 0..0,
        }
    }

    /// The bytes of a file in fact, also those where the disk fails.
    pub(crate) fn actual_file(&mut self, place: u64) -> Result<Vec<u8>, String> {
        let broken = self.broken(place);
        if let (Some(disk), false) = (&mut self.disk, broken.is_empty()) {
            disk.fail(0..0)?;
        }
        let actual = self.file(place).map_or(Ok(Vec::new()), Known::actual);
        if let (Some(disk), false) = (&mut self.disk, broken.is_empty()) {
            disk.fail(broken)?;
        }
        actual
    }

    /// The bytes of a page in fact, if a buffer that has it is mapped.
    pub(crate) fn actual_page(&self, page: &Page) -> Option<Vec<u8>> {
        self.buffers.iter().flatten().find_map(|buffer| {
            let place = buffer.pages.iter().position(|one| Rc::ptr_eq(one, page))?;
            let all = buffer.map.as_ref()?.bytes();
            Some(all[place * PAGE..(place + 1) * PAGE].to_vec())
        })
    }

    pub(crate) fn check_buffers(&self) -> Outcome {
        for (place, buffer) in self.buffers.iter().enumerate() {
            if let Some(buffer) = buffer {
                buffer.check().map_err(|why| format!("buf={place} ({:?}): {why}", buffer.kind))?;
            }
        }
        Ok(())
    }

    /// Compares everything.
    pub(crate) fn check(&mut self) -> Outcome {
        self.check_buffers()?;
        for (place, store) in self.stores.iter().enumerate() {
            if let Some(store) = store {
                store.check().map_err(|why| format!("store={place}: {why}"))?;
            }
        }
        if let Some(disk) = &mut self.disk {
            disk.fail(0..0)?;
        }
        for (place, file) in self.files.iter().enumerate() {
            if let Some(file) = file {
                file.uncache()?;
                file.check().map_err(|why| format!("file={place}: {why}"))?;
            }
        }
        for (place, held) in self.held.iter().enumerate() {
            if let Some(held) = held {
                held.check().map_err(|why| format!("held={place}: {why}"))?;
            }
        }
        self.saved.check_all()
    }
}
