// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of the process, mapped or allocated.

pub(crate) mod available;
pub(crate) mod huge;
pub(crate) mod lock;
pub(crate) mod page;
pub(crate) mod place;
pub(crate) mod sizes;

mod io;
mod raw;
mod shared;

use std::alloc::{self, Layout};
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};

use rustix::mm::{self, Advice, MapFlags, ProtFlags};

use self::page::{huge_page, page_size, round_up};
use self::shared::Shared;
use crate::errno::IntoErrno;
use crate::error::{Error, Result};

/// Private memory of this length is mapped: a huge page of processors with small pages.
const WORTH_MAPPING: u64 = 2 << 20;

/// How many times an aligned address is looked for: another thread may take it first.
const ALIGN_TRIES: u32 = 4;

/// Memory of this process: a mapping of a buffer, or private memory.
///
/// A buffer's content may change at any moment, so no slices of it exist: the kernel reads files
/// into it and writes them from it.
#[derive(Debug)]
pub struct Mapping {
    origin: Origin,
    start: NonNull<u8>,
    len: usize,
    /// Whether the pages exist as long as the mapping. Otherwise the kernel copies from and to it.
    lasting: bool,
    /// Whether huge pages must be made by collapsing small ones.
    collapse: bool,
    /// Over how many nodes huge pages that are made so are spread in turn.
    turns: u64,
}

/// How the memory is released.
#[derive(Debug)]
enum Origin {
    /// Unmapped, including the slack for alignment.
    Mapped(NonNull<c_void>, usize),
    /// Returned to the allocator.
    Allocated(Layout),
}

// SAFETY: a mapping belongs to the process, not to a thread; access to it goes through the methods
// of the types that hold it.
unsafe impl Send for Mapping {}
// SAFETY: as above; methods of a shared mapping write only through raw pointers.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes of a file, aligned for huge pages. Anyone with the file may take
    /// the pages away, unless [`lasting`](Self::lasting) says otherwise.
    pub(crate) fn new(fd: BorrowedFd<'_>, len: u64, writable: bool) -> Result<Self> {
        let prot = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        Self::of_file(fd, len, len, prot, MapFlags::SHARED)
    }

    /// Maps the first `len` bytes of a memfd for writing. The last huge page is mapped as a whole,
    /// so that it can exist; nothing may be stored beyond the memfd's last page.
    pub(crate) fn in_huge_pages(fd: BorrowedFd<'_>, len: u64) -> Result<Self> {
        let whole = round_up(len, huge_page()).ok_or(map_error(rustix::io::Errno::OVERFLOW))?;
        Self::of_file(fd, len, whole, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED)
    }

    fn of_file(
        fd: BorrowedFd<'_>,
        len: u64,
        mapped: u64,
        prot: ProtFlags,
        sharing: MapFlags,
    ) -> Result<Self> {
        let size = mappable(mapped)?;
        let map = |hint: *mut c_void, flags| {
            // SAFETY: requests new address space: `FIXED_NOREPLACE` replaces no mapping.
            unsafe { mm::mmap(hint, size, prot, sharing | flags, fd, 0) }
        };
        let mut start = Err(rustix::io::Errno::EXIST);
        for _ in 0..if mapped < huge_page() { 0 } else { ALIGN_TRIES } {
            start = map(Self::aligned_gap(mapped)?, MapFlags::FIXED_NOREPLACE);
            if start != Err(rustix::io::Errno::EXIST) {
                break;
            }
        }
        if start == Err(rustix::io::Errno::EXIST) {
            start = map(ptr::null_mut(), MapFlags::empty());
        }
        let start = NonNull::new(start.map_err(map_error)?);
        let start = start.ok_or(map_error(rustix::io::Errno::NOMEM))?;
        Ok(Self::of(Origin::Mapped(start, size), start.cast(), len as usize, false))
    }

    /// An address for `len` bytes, aligned for huge pages, where nothing is mapped now. It is not
    /// reserved: a mapping that fails with `MAP_FIXED` may leave a gap in the reservation it was to
    /// replace (`vms_abort_munmap_vmas()` in mm/vma.c), which another thread's memory may fill
    /// before the reservation is unmapped.
    fn aligned_gap(len: u64) -> Result<*mut c_void> {
        let reservation = Self::reserve(len, ProtFlags::empty(), MapFlags::NORESERVE)?;
        Ok(reservation.as_ptr().cast())
    }

    /// Gets `len` bytes of private memory with undefined content, aligned for huge pages.
    ///
    /// Little comes from the allocator: mapping and touching new pages can take as long as reading
    /// into them (docs/notes/performance.md).
    pub(crate) fn anonymous(len: u64) -> Result<Self> {
        // SAFETY: the layout is not empty.
        Self::private(len, |layout| unsafe { alloc::alloc(layout) })
    }

    /// Like [`anonymous`](Self::anonymous), with zeros.
    pub(crate) fn zeroed(len: u64) -> Result<Self> {
        // SAFETY: the layout is not empty.
        Self::private(len, |layout| unsafe { alloc::alloc_zeroed(layout) })
    }

    /// Private memory, by a mapping or by `allocate`, which gets a layout that is not empty.
    fn private(len: u64, allocate: fn(Layout) -> *mut u8) -> Result<Self> {
        if len >= WORTH_MAPPING {
            return Self::mapped(len);
        }
        let layout = Layout::from_size_align(mappable(len.max(1))?, page_size() as usize)
            .map_err(|_| map_error(rustix::io::Errno::INVAL))?;
        let start = NonNull::new(allocate(layout));
        let start = start.ok_or(map_error(rustix::io::Errno::NOMEM))?;
        Ok(Self::of(Origin::Allocated(layout), start, len as usize, true))
    }

    /// The same, with pages that nothing else has: memory of the allocator is beside other memory.
    pub(crate) fn mapped(len: u64) -> Result<Self> {
        Self::reserve(len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::empty())
    }

    fn reserve(len: u64, prot: ProtFlags, flags: MapFlags) -> Result<Self> {
        let len = mappable(len)?;
        let slack = if len as u64 >= huge_page() { huge_page() as usize } else { 0 };
        // SAFETY: requests new address space at an address of the kernel's choice; no existing
        // memory changes.
        let base = unsafe {
            mm::mmap_anonymous(ptr::null_mut(), len + slack, prot, MapFlags::PRIVATE | flags)
        }
        .map_err(map_error)?;
        let base = NonNull::new(base).ok_or(map_error(rustix::io::Errno::NOMEM))?;
        let skip = if slack == 0 { 0 } else { base.align_offset(slack).min(slack) };
        // SAFETY: `skip` is at most the slack, so the address is within the reservation.
        let start = unsafe { base.byte_add(skip) }.cast();
        Ok(Self::of(Origin::Mapped(base, len + slack), start, len, true))
    }

    fn of(origin: Origin, start: NonNull<u8>, len: usize, lasting: bool) -> Self {
        Self { origin, start, len, lasting, collapse: false, turns: 1 }
    }

    /// Declares that the pages cannot be taken away.
    ///
    /// # Safety
    ///
    /// The declaration is true: touching a page of the mapping never raises `SIGBUS`.
    pub(crate) unsafe fn lasting(mut self) -> Self {
        self.lasting = true;
        self
    }

    /// Copies bytes from `offset` to private memory, which is initialised afterwards.
    ///
    /// # Errors
    ///
    /// [`Error::Buffer`] with `EFAULT` if the pages were taken away.
    pub(crate) fn read(&self, offset: u64, out: &mut [MaybeUninit<u8>]) -> Result<()> {
        let from = self.range(offset, out.len() as u64);
        let (to, len) = (out.as_mut_ptr().cast(), out.len());
        // SAFETY: the range lies in the mapping, and `out` is borrowed exclusively.
        unsafe { self.copy(from, to, len, Shared::From) }
    }

    /// Copies bytes from `offset` on into `out`. The caller has begun CPU access. Each byte written
    /// concurrently may be old or new.
    ///
    /// # Errors
    ///
    /// [`Error::Buffer`] with `EFAULT` if the pages were taken away.
    ///
    /// # Panics
    ///
    /// If the range is not in the memory.
    pub fn copy_to(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let (start, len) = (out.as_mut_ptr().cast::<MaybeUninit<u8>>(), out.len());
        // SAFETY: these are the same bytes, and `read` writes only initialised ones.
        self.read(offset, unsafe { std::slice::from_raw_parts_mut(start, len) })
    }

    /// Copies `bytes` to `offset`. The caller may write the memory and has begun CPU access.
    ///
    /// # Errors
    ///
    /// As for [`copy_to`](Self::copy_to).
    ///
    /// # Panics
    ///
    /// If the range is not in the memory.
    pub fn copy_from(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write(offset, bytes)
    }

    /// Copies `len` bytes, starting at `offset`.
    ///
    /// # Errors
    ///
    /// As for [`read`](Self::read).
    pub(crate) fn to_vec(&self, offset: u64, len: u64) -> Result<Vec<u8>> {
        let len = len as usize;
        let mut bytes = Vec::<u8>::with_capacity(len);
        self.read(offset, &mut bytes.spare_capacity_mut()[..len])?;
        // SAFETY: the capacity is `len` bytes, and they have just been copied there.
        unsafe { bytes.set_len(len) };
        Ok(bytes)
    }

    /// Copies `bytes` to `offset`.
    ///
    /// # Errors
    ///
    /// As for [`read`](Self::read).
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let to = self.range(offset, bytes.len() as u64);
        // SAFETY: the range lies in the mapping, which its owner may write, and `bytes` is
        // borrowed, so nothing writes it.
        unsafe { self.copy(bytes.as_ptr(), to, bytes.len(), Shared::To) }
    }

    /// Sets `len` bytes, starting at `offset`, to `byte`.
    ///
    /// # Errors
    ///
    /// As for [`read`](Self::read).
    pub(crate) fn fill(&self, offset: u64, len: u64, byte: u8) -> Result<()> {
        const PIECE: u64 = 16 << 10;
        let bytes = vec![byte; PIECE.min(len) as usize];
        let end = offset + len;
        for at in (offset..end).step_by(PIECE as usize) {
            self.write(at, &bytes[..PIECE.min(end - at) as usize])?;
        }
        Ok(())
    }

    /// The start of a range.
    fn range(&self, offset: u64, len: u64) -> *mut u8 {
        let end = offset.checked_add(len);
        assert!(end.is_some_and(|end| end <= self.len()), "{len} bytes at {offset} are outside");
        self.at(offset)
    }

    /// # Safety
    ///
    /// The shared side is a range of this mapping, and writable if it is the target; the other side
    /// has the same length, and nothing else uses it during the call.
    unsafe fn copy(&self, from: *const u8, to: *mut u8, len: usize, shared: Shared) -> Result<()> {
        if self.lasting {
            // SAFETY: the caller's promise, and the pages exist.
            unsafe { shared::copy(from, to, len) };
            return Ok(());
        }
        // SAFETY: the caller's promise.
        unsafe { shared::copy_by_kernel(from, to, len, shared) }
            .map_err(|errno| Error::Buffer { call: "reach all of", errno: errno.into_errno() })
    }

    /// Whether the pages may be taken away: a memfd that is not sealed against shrinking, or in huge
    /// pages. Touching a page that is gone raises `SIGBUS`.
    pub fn shrinks(&self) -> bool {
        !self.lasting
    }

    /// The address of the first byte, at least page-aligned, valid as long as the mapping. Others
    /// may write the memory at any time, and its pages may vanish if it [shrinks](Self::shrinks).
    /// The caller must begin and end CPU access around its own accesses:
    /// [`Buffer::begin_cpu_access`](crate::Buffer::begin_cpu_access).
    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Length in bytes.
    #[allow(clippy::len_without_is_empty, reason = "no mapping is")]
    pub fn len(&self) -> u64 {
        self.len as u64
    }

    /// The address of a byte of the mapping.
    pub(crate) fn at(&self, offset: u64) -> *mut u8 {
        assert!(offset <= self.len(), "offset {offset} is outside the mapping");
        // SAFETY: within the mapping, or one past its end, as just asserted.
        unsafe { self.start.as_ptr().add(offset as usize) }
    }

    /// Requests transparent huge pages, or none even where they are the default. Whether they are
    /// used is shown by [`PageSizes::of`](sizes::PageSizes::of).
    pub(crate) fn advise(&self, huge: bool) {
        if self.len() < huge_page() {
            return;
        }
        let advice = if huge { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
        // SAFETY: this advice changes neither content nor validity of the mapping.
        let _ = unsafe { mm::madvise(self.as_ptr().cast(), self.whole(), advice) };
    }

    /// Bytes that are mapped from the start on, which may be more than its length: advice for a part
    /// would split the mapping, and its last huge page.
    pub(crate) fn whole(&self) -> usize {
        match &self.origin {
            Origin::Mapped(base, size) => size - (self.start.addr().get() - base.addr().get()),
            Origin::Allocated(_) => self.len,
        }
    }

    /// Collapses small pages into huge ones as memory is allocated, if the kernel does so for the
    /// first one. Since Linux 6.1 it does so for any process, whatever `shmem_enabled` says:
    /// `MADV_COLLAPSE` in madvise(2). Returns whether it did.
    pub(crate) fn collapse(&mut self) -> bool {
        self.collapse = self.len() >= huge_page() && self.collapse_range(0, huge_page()).is_ok();
        self.collapse
    }

    /// Collapses a range into huge pages, which are allocated afterwards, from one small page of
    /// each.
    fn collapse_range(&self, start: u64, end: u64) -> rustix::io::Result<()> {
        let start = start / huge_page() * huge_page();
        for huge in (start..end).step_by(huge_page() as usize) {
            let small = self.first_of(huge);
            self.touch(small, small + page_size(), true)?;
        }
        let len = (end - start).next_multiple_of(huge_page()) as usize;
        // SAFETY: this advice keeps the content. The last huge page was mapped as a whole, even if
        // part of it is beyond this mapping.
        match unsafe { libc::madvise(self.at(start).cast(), len, libc::MADV_COLLAPSE) } {
            0 => Ok(()),
            _ => Err(last_errno()),
        }
    }

    /// The page to collapse a huge page from, which decides its node (`collapse_find_target_node()` in
    /// mm/khugepaged.c). Small pages take nodes in turn, so that the first pages of all huge ones would be on the
    /// same node if the number of nodes is a power of two.
    fn first_of(&self, huge: u64) -> u64 {
        let (pages, number) = (huge_page() / page_size(), huge / huge_page());
        let page = number * (self.turns - (pages - 1) % self.turns) % self.turns;
        let small = huge + page * page_size();
        if page < pages && small < self.len() { small } else { huge }
    }

    /// Allocates the pages of a range and keeps their content. Blocks until they are allocated. For
    /// its errors see [`cannot_populate`] and [`populate_error`].
    ///
    /// Huge pages in the range are touched at their end first. If touched at the start, kernels
    /// before 7.0 zero their small pages backwards, which takes twice as long
    /// (`process_huge_page()` in mm/memory.c, docs/notes/performance.md).
    pub(crate) fn populate(&self, offset: u64, len: u64, write: bool) -> rustix::io::Result<()> {
        let start = offset & !(page_size() - 1);
        let end = offset.saturating_add(len).min(self.len());
        if write && self.collapse {
            // Small pages are used where there is no huge page.
            let _ = self.collapse_range(start, end);
        } else if write {
            let mut huge = start.next_multiple_of(huge_page());
            while huge + huge_page() <= end {
                huge += huge_page();
                self.touch(huge - page_size(), huge, write)?;
            }
        }
        self.touch(start, end, write)
    }

    /// Whether pages can be freed before the mapping goes: memory of the allocator stays with it.
    pub(crate) fn can_release(&self) -> bool {
        matches!(self.origin, Origin::Mapped(..))
    }

    /// Frees the pages of a range of private memory, or behind it: they are zero when they are touched again.
    pub(crate) fn release(&self, pages: Range<u64>) {
        if pages.is_empty() || !self.can_release() {
            return;
        }
        let len = (pages.end.min(self.whole() as u64) - pages.start) as usize;
        // Without it, the kernel keeps pages that mlock(2) has locked. Kernels before 5.18 do not know it.
        let mut advise = [libc::MADV_DONTNEED_LOCKED, libc::MADV_DONTNEED].into_iter();
        let start = self.start.as_ptr().wrapping_add(pages.start as usize);
        // SAFETY: the range lies in what is mapped, and the caller owns its content. Where the advice
        // fails, the memory is freed with the mapping.
        let free = |advice| unsafe { libc::madvise(start.cast(), len, advice) } == 0;
        let _ = advise.any(free);
    }

    fn touch(&self, start: u64, end: u64, write: bool) -> rustix::io::Result<()> {
        let advice = if write { Advice::LinuxPopulateWrite } else { Advice::LinuxPopulateRead };
        if start >= end {
            return Ok(());
        }
        loop {
            // SAFETY: this advice keeps the content; the range lies in the mapping.
            let result =
                unsafe { mm::madvise(self.at(start).cast(), (end - start) as usize, advice) };
            match result {
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                other => return other,
            }
        }
    }
}

/// Whether populating failed for a reason that does not prevent touching the pages: the kernel
/// (before Linux 5.14, or a reimplementation) does not know the advice, or a seccomp filter forbids
/// it.
pub(crate) fn cannot_populate(errno: rustix::io::Errno) -> bool {
    use rustix::io::Errno as Os;
    matches!(errno, Os::INVAL | Os::NOSYS | Os::PERM)
}

/// Why there are no pages for a buffer of `wanted` bytes; `shrinks` says whether they may be taken
/// away. `EFAULT` means that a touch would raise `SIGBUS`: they were taken away, or there are none.
pub(crate) fn populate_error(errno: rustix::io::Errno, wanted: u64, shrinks: bool) -> Error {
    match errno {
        rustix::io::Errno::NOMEM => Error::NoMemory { wanted, available: None, reserve: None },
        rustix::io::Errno::FAULT if !shrinks => {
            Error::NoMemory { wanted, available: None, reserve: None }
        }
        _ => Error::Buffer { call: "allocate the pages of", errno: errno.into_errno() },
    }
}

fn last_errno() -> rustix::io::Errno {
    let error = std::io::Error::last_os_error();
    rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::INVAL)
}

/// The length of a mapping, which is at most half of the address space: pointers and slices do not
/// reach further. Only in 32-bit programs are there longer buffers.
fn mappable(len: u64) -> Result<usize> {
    let len = isize::try_from(len).map_err(|_| map_error(rustix::io::Errno::OVERFLOW))?;
    Ok(len.unsigned_abs())
}

fn map_error(errno: rustix::io::Errno) -> Error {
    Error::Buffer { call: "map", errno: errno.into_errno() }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        match self.origin {
            // SAFETY: unmaps the whole mapping, whose owner is being dropped.
            Origin::Mapped(base, len) => unsafe {
                let _ = mm::munmap(base.as_ptr(), len);
            },
            // SAFETY: it was allocated with this layout; its owner is being dropped.
            Origin::Allocated(layout) => unsafe { alloc::dealloc(self.start.as_ptr(), layout) },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd as _, OwnedFd};
    use std::path::Path;

    use super::sizes::PageSizes;
    use super::*;
    use crate::errno::Errno;

    /// A memfd without pages.
    fn memfd(name: &str, len: u64) -> OwnedFd {
        let fd = rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC).expect("a memfd");
        rustix::fs::ftruncate(&fd, len).expect("its length");
        fd
    }

    fn is_aligned(mapping: &Mapping) -> bool {
        mapping.as_ptr().addr() % huge_page() as usize == 0
    }

    /// The flags in `/proc/self/smaps` of the memory at an address, such as `"rd wr hg"`.
    pub(super) fn flags(mapping: &Mapping) -> Option<String> {
        let at = mapping.as_ptr().addr();
        let is_there = |line: &str| {
            let (start, end) = line.split(' ').next()?.split_once('-')?;
            let number = |text| usize::from_str_radix(text, 16).ok();
            Some((number(start)?..number(end)?).contains(&at))
        };
        let smaps = std::fs::read_to_string("/proc/self/smaps").ok()?;
        let lines = smaps.lines().skip_while(|line| is_there(line) != Some(true));
        let mut flags = lines.filter_map(|line| line.strip_prefix("VmFlags: "));
        flags.next().map(str::to_owned)
    }

    /// Bytes of a memfd that are allocated.
    fn allocated(fd: &OwnedFd) -> u64 {
        rustix::fs::fstat(fd).expect("stat").st_blocks as u64 * 512
    }

    fn huge_bytes(mapping: &Mapping) -> u64 {
        PageSizes::of(mapping).map_or(0, |sizes| sizes.huge_bytes)
    }

    /// Whether the kernel collapses the start of a memfd now.
    fn collapses() -> bool {
        let fd = memfd("collapses", huge_page());
        let mapping = Mapping::new(fd.as_fd(), huge_page(), true).expect("mapped");
        mapping.fill(0, 1, 1).expect("a page");
        // SAFETY: this advice keeps the content.
        let refused = unsafe {
            libc::madvise(mapping.as_ptr().cast(), huge_page() as usize, libc::MADV_COLLAPSE)
        };
        refused == 0 && huge_bytes(&mapping) == huge_page()
    }

    #[test]
    fn half_of_the_address_space_can_be_mapped() {
        const LONG: u64 = 3 << 30;
        let fd = memfd("long", LONG);
        let mapped = |len| Mapping::new(fd.as_fd(), len, false);
        let beyond = if cfg!(target_pointer_width = "32") {
            // Two of them are short if their upper bits are lost.
            &[LONG, 1 << 32, (1 << 32) + 4096, u64::MAX][..]
        } else {
            assert_eq!(mapped(LONG).expect("mapped").len(), LONG);
            &[1 << 63, u64::MAX]
        };
        for len in beyond {
            for result in [mapped(*len), Mapping::anonymous(*len)] {
                let error = result.expect_err("too long");
                assert_eq!(error.errno(), Some(Errno::OVERFLOW), "{len}");
                assert!(
                    error.hint().to_string().contains("in a 32-bit program"),
                    "{}",
                    error.hint()
                );
            }
        }
    }

    #[test]
    fn large_memory_is_mapped_and_small_memory_allocated() {
        let mut kept = Vec::new();
        for len in [1, page_size(), huge_page() - 1] {
            let mapping = Mapping::anonymous(len).expect("memory");
            assert!(matches!(mapping.origin, Origin::Allocated(_)), "{len}");
        }
        for len in [huge_page(), huge_page() + page_size(), 3 * huge_page() - page_size()] {
            let mapping = Mapping::anonymous(len).expect("memory");
            let Origin::Mapped(base, mapped) = mapping.origin else { panic!("{len}") };
            assert!(is_aligned(&mapping) && mapping.len() == len);
            assert_eq!(mapped as u64, len + huge_page(), "with room to align it");
            let skipped = mapping.as_ptr().addr() - base.as_ptr().addr();
            assert!(skipped as u64 <= huge_page());
            // Not all of it: a huge page has 512 MiB where a page has 64 KiB.
            for at in [0, len - page_size()] {
                mapping.fill(at, page_size(), 7).expect("its ends can be written");
            }
            kept.push(mapping);
        }
        for len in [huge_page(), huge_page() + page_size(), 3 * huge_page()] {
            let fd = memfd("aligned", len);
            let mapping = Mapping::new(fd.as_fd(), len, true).expect("mapped");
            assert!(is_aligned(&mapping), "{len}");
            kept.push(mapping);
        }
    }

    #[test]
    fn dropped_mapping_is_unmapped() {
        let maps = || std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let name = "what-is-dropped";
        let fd = memfd(name, 3 * huge_page());
        let mapping = Mapping::new(fd.as_fd(), 3 * huge_page(), false).expect("mapped");
        if !maps().contains(name) {
            return println!("skipped: no maps");
        }
        drop(mapping);
        assert!(!maps().contains(name));
    }

    #[test]
    fn huge_page_advice_follows_the_option() {
        let mut kept = Vec::new();
        for (len, huge) in [(huge_page(), true), (huge_page(), false), (4 * huge_page(), true)] {
            let fd = memfd("advised", len);
            let mapping = Mapping::new(fd.as_fd(), len, true).expect("mapped");
            mapping.advise(huge);
            let Some(flags) = flags(&mapping) else { return println!("skipped: no smaps") };
            // Kernels without huge pages know neither flag.
            if Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
                assert!(flags.contains(if huge { " hg" } else { " nh" }), "{len}: {flags}");
            }
            kept.push(mapping);
        }
        let fd = memfd("little", huge_page());
        let little = Mapping::new(fd.as_fd(), huge_page() - page_size(), true).expect("mapped");
        little.advise(true);
        let flags = flags(&little).expect("flags");
        assert!(!flags.contains(" hg"), "there is no room for one: {flags}");
    }

    #[test]
    fn populate_allocates_only_pages_of_the_range() {
        let page = page_size();
        if huge::memfds_are_huge() {
            return println!("skipped: a page is a huge page");
        }
        for (offset, len, pages) in [
            (0, 8 * page, 8),
            (0, 1, 1),
            (page + 5, page, 2),
            (2 * page + 5, 1, 1),
            (7 * page, page * 9, 1),
        ] {
            let fd = memfd("populated", 8 * page);
            let mapping = Mapping::new(fd.as_fd(), 8 * page, true).expect("mapped");
            mapping.populate(offset, len, true).expect("populated");
            assert_eq!(allocated(&fd), pages * page, "{len} bytes from {offset}");
        }
        let fd = memfd("huge", 3 * huge_page());
        let mapping = Mapping::new(fd.as_fd(), 3 * huge_page(), true).expect("mapped");
        mapping.populate(page, 2 * huge_page() + page, true).expect("populated");
        assert_eq!(allocated(&fd), 2 * huge_page() + page, "of two huge pages, one from its start");
        assert_eq!(huge_bytes(&mapping), 0, "nobody asked for huge pages");
    }

    #[test]
    fn small_pages_are_collapsed_into_huge_ones() {
        let little = memfd("little", huge_page() - 1);
        let mut little = Mapping::new(little.as_fd(), huge_page() - 1, true).expect("mapped");
        assert!(!little.collapse(), "there is no room for one");
        if !collapses() {
            return println!("skipped: this kernel does not collapse pages of memfds");
        }
        let map = || {
            let fd = memfd("collapsed", 3 * huge_page());
            Mapping::in_huge_pages(fd.as_fd(), 3 * huge_page() - page_size()).expect("mapped")
        };
        let mapping = map();
        let (start, end) = (huge_page() + 5000, 2 * huge_page() + 1);
        assert_eq!(mapping.collapse_range(start, end), Ok(()));
        assert_eq!(huge_bytes(&mapping), 2 * huge_page(), "those of the range");
        let mut mapping = map();
        assert!(mapping.collapse());
        assert_eq!(huge_bytes(&mapping), huge_page(), "the first one, to try it");
        mapping.populate(0, mapping.len(), true).expect("populated");
        assert_eq!(huge_bytes(&mapping), mapping.len());
    }

    #[test]
    fn huge_pages_are_collapsed_from_pages_of_each_node_in_turn() {
        let fd = memfd("turns", 12 * huge_page());
        let mut mapping = Mapping::new(fd.as_fd(), 12 * huge_page(), false).expect("mapped");
        for turns in 1..6 {
            mapping.turns = turns;
            for number in 0..12 {
                let page = mapping.first_of(number * huge_page()) / page_size();
                assert_eq!(page % turns, number % turns, "{number} of {turns}");
                assert_eq!(page * page_size() / huge_page(), number, "it is in the huge page");
            }
        }
        let little = memfd("little", 1);
        let mut little = Mapping::new(little.as_fd(), 1, false).expect("mapped");
        little.turns = 3;
        assert_eq!(little.first_of(huge_page()), huge_page(), "the others are beyond its end");
    }

    #[test]
    fn populate_errors_distinguish_shortage_and_shrinking() {
        use rustix::io::Errno as Os;
        for (errno, shrinks, short) in [
            (Os::NOMEM, true, true),
            (Os::NOMEM, false, true),
            (Os::FAULT, true, false),
            (Os::FAULT, false, true),
            (Os::HWPOISON, false, false),
        ] {
            let error = populate_error(errno, 4096, shrinks);
            assert_eq!(matches!(error, Error::NoMemory { .. }), short, "{errno}: {error}");
            assert!(short || error.errno() == Some(errno.into_errno()), "{errno}: {error}");
        }
    }
}
