// SPDX-License-Identifier: MIT OR Apache-2.0
//! READ and WRITE of a GiB between a dma-buf and a device that moves nothing; one in sixteen also
//! to a RAM disk and back, every byte of which is compared.

use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

use dmabuf_dio_sys::{dio, heap};

use crate::mapping::Mapping;
use crate::pages::{PAGE, difference, stamp};
use crate::soak::Part;
use crate::soak::disk::Disk;

const GIB: u64 = 1 << 30;
const BUFFER: u64 = 64 << 20;
/// Of them one is checked.
const CHECKED: u64 = 16;

struct Buffer {
    context: OwnedFd,
    map: Mapping,
    _dmabuf: OwnedFd,
}

impl Buffer {
    fn new() -> Result<Self, String> {
        let failed = |errno| format!("a buffer: {errno}");
        let heap = heap::open("/dev/dma_heap/system").map_err(failed)?;
        let dmabuf = heap::alloc(heap.as_fd(), BUFFER).map_err(failed)?;
        let context = dio::open().map_err(failed)?;
        dio::attach(context.as_fd(), dmabuf.as_fd(), &mut dio::Attach::default())
            .map_err(failed)?;
        let map = Mapping::of(dmabuf.as_fd(), BUFFER as usize, true)?;
        Ok(Self { context, map, _dmabuf: dmabuf })
    }

    fn moves(&self, write: bool, disk: &Disk, file_offset: u64) -> Result<(), String> {
        let mut rw = dio::ReadWrite {
            file_fd: disk.file.as_raw_fd(),
            file_offset,
            length: BUFFER,
            ..dio::ReadWrite::default()
        };
        let call = if write { dio::write } else { dio::read };
        call(self.context.as_fd(), &mut rw).map_err(|errno| format!("a transfer: {errno}"))?;
        if (rw.done, rw.direct) == (BUFFER, BUFFER) {
            return Ok(());
        }
        Err(format!("{} bytes done, {} of them direct, of {BUFFER}", rw.done, rw.direct))
    }

    /// What the module has counted.
    fn moved(&self) -> u64 {
        let path = format!("/proc/self/fdinfo/{}", self.context.as_raw_fd());
        crate::procfs::number(&path, "moved:") as u64
    }
}

pub(crate) struct Transfers {
    null: Disk,
    ram: Disk,
    one: Buffer,
    other: Buffer,
    /// What is checked; each page begins with the number of the check.
    bytes: Vec<u8>,
    turns: u64,
    checked: u64,
}

impl Transfers {
    pub(crate) fn new() -> Result<Self, String> {
        let (null, ram) = (Disk::open("nullb0")?, Disk::open("nullb1")?);
        let bytes = stamp(1, 0, BUFFER as usize);
        let (one, other) = (Buffer::new()?, Buffer::new()?);
        Ok(Self { null, ram, one, other, bytes, turns: 0, checked: 0 })
    }

    /// Out of one buffer and into the other.
    fn check(&mut self) -> Result<(), String> {
        for page in self.bytes.chunks_exact_mut(PAGE) {
            page[..8].copy_from_slice(&self.checked.to_ne_bytes());
        }
        self.one.map.store(0, &self.bytes);
        self.one.moves(true, &self.ram, 0)?;
        self.other.moves(false, &self.ram, 0)?;
        self.checked += 1;
        difference("what came back", &self.other.map.bytes(), &self.bytes)
    }
}

impl Part for Transfers {
    fn name(&self) -> &'static str {
        "transfers"
    }

    fn turn(&mut self) -> Result<u64, String> {
        for place in 0..GIB / BUFFER {
            self.one.moves(self.turns % 2 == 1, &self.null, place * BUFFER)?;
        }
        if self.turns % CHECKED == 0 {
            self.check()?;
        }
        self.turns += 1;
        Ok(1)
    }

    fn judge(&mut self) -> Result<String, String> {
        let (written, read) = (self.turns / 2 * GIB, self.turns.div_ceil(2) * GIB);
        let null = self.null.counted()?;
        if (null.read, null.written) != (read, written) {
            return Err(format!("the device counted {null:?}, {read} and {written} were moved"));
        }
        let ram = self.ram.counted()?;
        let checked = self.checked * BUFFER;
        if (ram.read, ram.written) != (checked, checked) {
            return Err(format!("the RAM disk counted {ram:?}, {checked} was moved each way"));
        }
        let moved = self.one.moved() + self.other.moved();
        if moved != read + written + 2 * checked {
            return Err(format!("the module counted {moved}"));
        }
        Ok(format!("bytes={moved} compared={checked}"))
    }
}
