// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every way of having a file in memory, for all benchmarks.

pub(crate) mod held;
pub(crate) mod module;
mod parallel;
pub(crate) mod registry;
pub(crate) mod ring;

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use dmabuf_dio::{Backend, Kind, Loader};
use dmabuf_dio_sys::heap;
use io_uring::IoUring;
use rustix::buffer::spare_capacity;
use rustix::io::Errno as Os;
use rustix::mm::ProtFlags;

use crate::buffer::mapping::{Mapping, Pages};
use crate::buffer::{Buffer, BufferKind, Maker, memfd, open_heap};
use crate::disk::{DiskFile, IoMode};
use crate::host::setting::Setting;
use crate::measure::Meter;
use crate::outcome::{Lack, NOT_ROOT, Result, Trouble, failed, refused, repeat, whole};
use held::{Held, Memory};
use ring::Uring;

const RING_ENTRIES: u32 = 16;
/// Minimum size that `malloc` returns to the kernel when it is freed.
const MALLOC_BY_MMAP: i32 = 128 << 10;
/// Maximum length of a registered buffer, and that of a slot.
const MOST_REGISTERED: u64 = 1 << 30;
const SLOT: u64 = 64 << 20;
const READ_GATHER: &str = "/sys/module/dma_heap/parameters/read_gather";
/// Larger than any buffer: all memory is allocated before the first read.
const ALL: u64 = 1 << 40;

/// Bytes of a request, and how many are in flight.
pub(crate) type Requests = (u64, u32);

/// A way of having a file in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Way {
    /// Make a buffer, then `read()` into its mapping, which includes making the mapping and, of a memfd, its pages, or,
    /// if `mapped`, finds them made.
    Read { kind: BufferKind, mode: IoMode, mapped: bool },
    /// Make a dma-buf, then `copy_file_range()` to it; if `again`, once more, as a kernel may have kept it mapped.
    Copy { kind: BufferKind, again: bool },
    /// Read into a memfd from several threads. The udmabuf over it is created meanwhile, or, if `huge`,
    /// at the end, as what it pins cannot become a huge page.
    Parallel { huge: bool },
    /// Fill a memfd by sendfile, create a udmabuf over it.
    Sendfile,
    /// Allocate and read in one call, by the heap flag: at once if `gather`, else all memory is allocated before the
    /// first read.
    HeapLoad { mode: IoMode, gather: bool },
    /// The same by the module.
    ModuleLoad { mode: IoMode, gather: bool },
    /// Only allocate a dma-buf.
    Allocate,
    /// Only attach a buffer to the module.
    Attach(BufferKind),
    /// READ of the module into an attached buffer; 0 selects its default.
    ModuleRead(Requests),
    /// `READ_FIXED` on lent pages.
    Slots(Requests),
    /// `READ_FIXED` into a registered memfd, whose pages have been allocated before.
    Registered(Requests),
    /// The library.
    Library { backend: Option<Backend>, kind: Kind, huge_pages: bool },
    /// `pread()` into zeroed memory, as a fresh process gets it.
    Zeroed,
    /// `read()` into memory of malloc.
    Malloc,
    /// Map the file and touch each page of it.
    Map,
    /// `pread()` with `O_DIRECT` into huge pages, in pieces of this many bytes.
    Pread { piece: u64 },
    /// `io_uring` with `O_DIRECT` into 4 KiB pages: nothing is registered, allocation and I/O do not overlap.
    Ring(Requests),
}

impl Way {
    /// Bytes that the CPU copies and zeroes, per byte of the file.
    pub(crate) fn moves(self) -> [u8; 2] {
        match self {
            Self::HeapLoad { .. }
            | Self::ModuleLoad { .. }
            | Self::Attach(_)
            | Self::Library { backend: Some(Backend::Module | Backend::Heap), .. } => [0, 0],
            Self::Zeroed
            | Self::Malloc
            | Self::Library { backend: Some(Backend::Buffered), .. }
            | Self::Read { mode: IoMode::Buffer, .. } => [1, 1],
            _ => [0, 1],
        }
    }

    /// Whether it uses the page cache, and so needs twice the memory.
    pub(crate) fn fills_page_cache(self) -> bool {
        self != Self::Map && self.moves()[0] > 0
    }

    /// Loads the file, in phases.
    pub(crate) fn run(self, setup: &mut Setup<'_>, meter: &mut Meter<'_>) -> Result<Held> {
        Ok(match self {
            Self::Read { kind, mode, mapped } => {
                let (file, len) = setup.open(mode)?;
                let map = |buffer: &Buffer| mapped.then(|| buffer.map_with_pages()).transpose();
                let (buffer, mapping) = allocate(kind, len, meter, map)?;
                let mapping = meter.io(|| {
                    let mut mapping = mapping.map_or_else(|| buffer.map(), Ok)?;
                    buffer.read(file, &mut mapping)?;
                    Ok(mapping)
                })?;
                Held { mapping: Some(mapping), ..buffer.into() }
            }
            Self::Copy { kind, again } => {
                let (file, len) = setup.open(IoMode::Direct)?;
                let copy =
                    |buffer: &Buffer| if again { buffer.copy_file_range(file) } else { Ok(()) };
                let (buffer, ()) = allocate(kind, len, meter, copy)?;
                meter.io(|| buffer.copy_file_range(file))?;
                buffer.into()
            }
            Self::Parallel { huge } => {
                let (file, len) = setup.open(IoMode::Direct)?;
                let (buffer, mapping) = meter.load(|| parallel::load(file, len, huge))?;
                Held { mapping: Some(mapping), ..buffer.into() }
            }
            // The dma-buf is created last, which also allocates the memfd's pages.
            Self::Sendfile => {
                let (file, len) = setup.open(IoMode::Direct)?;
                let maker = Maker::new(BufferKind::UdmabufMemfd)?;
                let empty = meter.allocation(|| memfd(len))?;
                meter.io(|| empty.sendfile(file))?;
                meter.allocation(|| maker.cover(empty))?.into()
            }
            Self::HeapLoad { mode, gather } => by_heap(mode, gather, setup, meter)?,
            Self::ModuleLoad { mode, gather } => {
                let (file, len) = setup.open(mode)?;
                let gather = if gather { 0 } else { ALL };
                let (buffer, context) = meter.load(|| module::load(file, len, gather))?;
                Held { context: Some(context), ..buffer.into() }
            }
            Self::Allocate => {
                let (buffer, ()) = allocate(BufferKind::DmaBuf, setup.len, meter, |_| Ok(()))?;
                Memory::Unfilled(buffer).into()
            }
            Self::Attach(kind) => {
                let buffer = Maker::new(kind)?.make(setup.len)?;
                let context = Some(meter.allocation(|| module::attach(&buffer))?);
                Held { context, unmeasured: Some(buffer), ..Held::default() }
            }
            Self::ModuleRead(requests) => {
                let (file, len) = setup.open(IoMode::Direct)?;
                let (buffer, context) = allocate(BufferKind::DmaBuf, len, meter, module::attach)?;
                meter.io(|| module::read(&context, file, len, requests))?;
                Held { context: Some(context), ..buffer.into() }
            }
            Self::Slots(requests) => {
                let len = setup.open(IoMode::Direct)?.1;
                let (buffer, context) = allocate(BufferKind::DmaBuf, len, meter, module::attach)?;
                let ring = setup.ring()?;
                meter.allocation(|| ring.register_slots(context.as_fd(), len, SLOT))?;
                // SAFETY: the slots cover the attached dma-buf, which is not memory of Rust's.
                meter.io(|| unsafe { ring.read(0, SLOT, len, requests) })?;
                Held { registered: true, context: Some(context), ..buffer.into() }
            }
            Self::Registered(requests) => registered_memfd(requests, setup, meter)?,
            Self::Library { backend, kind, huge_pages } => {
                let loader = match setup.disk.path.as_deref() {
                    Some(path) => Loader::new(path),
                    None => Loader::from_fd(setup.disk.open(IoMode::Buffer)?.as_fd()),
                };
                let loader = loader.backend(backend).kind(kind).huge_pages(huge_pages);
                Memory::Library(meter.load(|| Ok(loader.load()?))?).into()
            }
            Self::Zeroed => {
                let (file, len) = setup.open(IoMode::Buffer)?;
                // SAFETY: changes where later allocations come from, as a fresh process has it.
                // Otherwise malloc keeps what was freed, and only the first allocation has page faults.
                unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, MALLOC_BY_MMAP) };
                let mut bytes = meter.allocation(|| Ok(vec![0_u8; len as usize]))?;
                meter.io(|| file.read_exact_at(&mut bytes, 0).map_err(failed("pread")))?;
                Memory::Vec(bytes).into()
            }
            Self::Malloc | Self::Map | Self::Pread { .. } | Self::Ring(_) => {
                meter.load(|| self.simple(setup))?.into()
            }
        })
    }

    /// One of the ways without phases, which only `compare` has.
    fn simple(self, setup: &Setup<'_>) -> Result<Memory> {
        let mode =
            if matches!(self, Self::Malloc | Self::Map) { IoMode::Buffer } else { IoMode::Direct };
        let (file, len) = setup.open(mode)?;
        Ok(Memory::Mapping(match self {
            Self::Map => {
                let mapping = Mapping::shared(file.as_fd(), len, ProtFlags::READ)?;
                // SAFETY: nobody else knows the file, so nobody changes or shrinks it.
                for byte in unsafe { mapping.content() }.iter().step_by(rustix::param::page_size())
                {
                    std::hint::black_box(*byte);
                }
                mapping
            }
            Self::Pread { piece } => {
                let mut mapping = Mapping::anonymous(len, Pages::Huge)?;
                // SAFETY: this process alone has the memory.
                let bytes = unsafe { mapping.bytes() };
                repeat("pread with O_DIRECT", len, |done| {
                    let end = len.min(done + piece) as usize;
                    rustix::io::pread(file, &mut bytes[done as usize..end], done)
                })?;
                mapping
            }
            Self::Ring(requests) => {
                let mapping = Mapping::anonymous(len, Pages::Small)?;
                let mut ring = Uring::plain(requests.1, file)?;
                // SAFETY: this process alone has the memory, all of which is mapped.
                unsafe { ring.read(mapping.address() as u64, u64::MAX, len, requests)? };
                mapping
            }
            _ => {
                let mut bytes = Vec::with_capacity(len as usize);
                repeat("read", len, |_| rustix::io::read(file, spare_capacity(&mut bytes)))?;
                return Ok(Memory::Vec(bytes));
            }
        }))
    }
}

/// Makes a buffer, and something of it.
fn allocate<T>(
    kind: BufferKind,
    len: u64,
    meter: &mut Meter<'_>,
    something: impl FnOnce(&Buffer) -> Result<T>,
) -> Result<(Buffer, T)> {
    let maker = Maker::new(kind)?;
    meter.allocation(|| {
        let buffer = maker.make(len)?;
        let something = something(&buffer)?;
        Ok((buffer, something))
    })
}

fn by_heap(mode: IoMode, gather: bool, setup: &Setup<'_>, meter: &mut Meter<'_>) -> Result<Held> {
    const FLAG: &str = "DMA_HEAP_FLAG_READ_FILE";
    const MISSING: &str = "this kernel lacks it; see kernel/series";
    let all = || Setting::set(READ_GATHER, &ALL.to_string());
    let lacks: [Lack<'_>; 2] = [(&[Os::NOENT], MISSING), NOT_ROOT];
    let _until_done = (!gather).then(all).transpose().map_err(refused(READ_GATHER, &lacks))?;
    let (file, len) = setup.open(mode)?;
    let heap = open_heap()?;
    let load = || heap::alloc_read_file(heap.as_fd(), len, file.as_fd(), 0);
    let (fd, done) = meter.load(|| load().map_err(refused(FLAG, &[(&[Os::INVAL], MISSING)])))?;
    whole(FLAG, done, len)?;
    Ok(Buffer::of_dmabuf(fd, len).into())
}

fn registered_memfd(
    requests: Requests,
    setup: &mut Setup<'_>,
    meter: &mut Meter<'_>,
) -> Result<Held> {
    let len = setup.open(IoMode::Direct)?.1;
    let ring = setup.ring()?;
    let (buffer, mut mapping) = allocate(BufferKind::Memfd, len, meter, Buffer::map_with_pages)?;
    let address = mapping.address() as u64;
    // SAFETY: the mapping is this program's own and only the ring uses it until it is unregistered.
    let pieces: Vec<libc::iovec> = unsafe { mapping.bytes() }
        .chunks_mut(MOST_REGISTERED as usize)
        .map(|piece| libc::iovec { iov_base: piece.as_mut_ptr().cast(), iov_len: piece.len() })
        .collect();
    // SAFETY: they stay mapped until they are unregistered by `close`, and hold plain bytes.
    meter.allocation(|| unsafe { ring.register(&pieces) })?;
    // SAFETY: as above.
    meter.io(|| unsafe { ring.read(address, MOST_REGISTERED, len, requests) })?;
    Ok(Held { registered: true, mapping: Some(mapping), ..buffer.into() })
}

/// The file, and what programs set up before their first transfer.
pub(crate) struct Setup<'a> {
    disk: &'a DiskFile,
    /// How many bytes of it are loaded.
    len: u64,
    ring: Option<Uring>,
}

impl<'a> Setup<'a> {
    pub(crate) fn new(disk: &'a DiskFile, len: u64) -> Self {
        Self { disk, len, ring: None }
    }

    /// The file, and how many bytes of it are loaded.
    fn open(&self, mode: IoMode) -> Result<(&'a File, u64)> {
        Ok((self.disk.open(mode)?, self.len))
    }

    /// The ring, created at first use. Its fixed file 0 is the file, open with `O_DIRECT`.
    fn ring(&mut self) -> Result<&mut Uring> {
        if self.ring.is_none() {
            let file = self.disk.open(IoMode::Direct)?;
            let ring = Uring::new(&IoUring::builder(), RING_ENTRIES, file, false)?;
            self.ring = Some(ring);
        }
        self.ring.as_mut().ok_or_else(|| Trouble::failed("io_uring", Os::IO))
    }

    /// Frees what a way has filled, as a phase, which has nothing else.
    pub(crate) fn close(&self, held: Held, meter: &mut Meter<'_>) {
        let Held { memory, mapping, context, registered, unmeasured } = held;
        let ring = self.ring.as_ref().filter(|_| registered);
        meter.close(move || {
            if let Some(ring) = ring {
                ring.unregister();
            }
            drop(mapping);
            drop(context);
            drop(memory);
        });
        drop(unmeasured);
    }
}
