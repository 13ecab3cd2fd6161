// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cases for every kernel: process memory, shared memory and the system heap.

use std::os::unix::fs::FileExt;

use dmabuf_dio::Direction;

use super::{MIB, Setup};
use crate::buffer::transfer::{Mover, TransferMethod};
use crate::buffer::{BufferKind, Maker, memfd};
use crate::buffer::{parallel as parallel_reads, registered};
use crate::cost::meter::PhaseMeter;
use crate::disk::IoMode;
use crate::measure::outcome::Trouble;
use crate::measure::outcome::{failed, io_failed};

/// Minimum size that `malloc` returns to the kernel when it is freed.
const MALLOC_BY_MMAP: i32 = 128 << 10;
/// Maximum length of a registered buffer.
const MOST_REGISTERED: u64 = 1 << 30;

pub(super) fn read_to_malloc(
    setup: &mut Setup<'_>,
    meter: &mut PhaseMeter<'_>,
) -> Result<(), Trouble> {
    let file = setup.disk.open(IoMode::Buffer)?;
    let len = setup.len() as usize;
    // SAFETY: changes where later allocations come from, as a fresh process has it. Otherwise
    // malloc keeps what was freed, and only the first allocation has page faults.
    unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, MALLOC_BY_MMAP) };
    let mut bytes = meter.allocation(|| vec![0_u8; len]);
    meter.io(|| file.read_exact_at(&mut bytes, 0)).map_err(io_failed("pread"))?;
    meter.compare_bytes(&mut bytes)?;
    meter.close(|| drop(bytes));
    Ok(())
}

/// Pages are allocated during the read.
pub(super) fn read_to_memfd(
    setup: &mut Setup<'_>,
    meter: &mut PhaseMeter<'_>,
) -> Result<(), Trouble> {
    let file = setup.disk.open(IoMode::Buffer)?;
    let mover = Mover::new(TransferMethod::ReadWrite, Direction::Load)?;
    let buffer = meter.allocation(|| memfd(setup.len()))?;
    let mappings =
        meter.io(|| mover.run(file, BufferKind::Memfd, std::slice::from_ref(&buffer)))?;
    meter.compare(&buffer)?;
    meter.close(|| drop((mappings, buffer)));
    Ok(())
}

/// Allocates and maps first.
fn read_to(
    setup: &Setup<'_>,
    meter: &mut PhaseMeter<'_>,
    mode: IoMode,
    kind: BufferKind,
) -> Result<(), Trouble> {
    let file = setup.disk.open(mode)?;
    let maker = Maker::new(kind)?;
    let mover = Mover::new(TransferMethod::ReadWrite, Direction::Load)?;
    let (buffer, mut mapping) = meter.allocation(|| {
        let buffer = maker.make(setup.len())?;
        let mut mapping = buffer.map()?;
        if kind.is_empty() {
            mapping.populate(0, setup.len()).map_err(failed("madvise"))?;
        }
        Ok((buffer, mapping))
    })?;
    meter.io(|| mover.run_mapped(file, kind, &buffer, &mut mapping))?;
    meter.compare(&buffer)?;
    meter.close(|| drop((mapping, buffer)));
    Ok(())
}

pub(super) fn pread_to_memfd(
    setup: &mut Setup<'_>,
    meter: &mut PhaseMeter<'_>,
) -> Result<(), Trouble> {
    read_to(setup, meter, IoMode::Direct, BufferKind::Memfd)
}

pub(super) fn read_to_heap(
    setup: &mut Setup<'_>,
    meter: &mut PhaseMeter<'_>,
) -> Result<(), Trouble> {
    read_to(setup, meter, IoMode::Buffer, BufferKind::DmaBuf)
}

pub(super) fn allocate(setup: &mut Setup<'_>, meter: &mut PhaseMeter<'_>) -> Result<(), Trouble> {
    let maker = Maker::new(BufferKind::DmaBuf)?;
    let buffer = meter.allocation(|| maker.make(setup.len()))?;
    meter.close(|| drop(buffer));
    Ok(())
}

pub(super) fn ring_to_memfd(
    setup: &mut Setup<'_>,
    meter: &mut PhaseMeter<'_>,
) -> Result<(), Trouble> {
    let len = setup.len();
    let ring = setup.ring()?;
    let (buffer, mut mapping) = meter.allocation(|| {
        let buffer = memfd(len)?;
        let mut mapping = buffer.map()?;
        mapping.populate(0, len).map_err(failed("madvise"))?;
        Ok((buffer, mapping))
    })?;
    // SAFETY: the mapping is this program's own and only the ring uses it until it is unregistered.
    let bytes = unsafe { mapping.bytes() };
    let address = bytes.as_mut_ptr() as u64;
    let pieces: Vec<libc::iovec> = bytes
        .chunks_mut(MOST_REGISTERED as usize)
        .map(|piece| libc::iovec { iov_base: piece.as_mut_ptr().cast(), iov_len: piece.len() })
        .collect();
    meter
        // SAFETY: they stay mapped until they are unregistered below, and hold plain bytes.
        .allocation(|| unsafe { ring.submitter().register_buffers(&pieces) })
        .map_err(io_failed("registering memory with io_uring"))?;
    // SAFETY: as above.
    meter.io(|| unsafe { registered::read_fixed(ring, address, MOST_REGISTERED, len, MIB, 8) })?;
    meter.compare(&buffer)?;
    meter.close(|| {
        drop(ring.submitter().unregister_buffers());
        drop((mapping, buffer));
    });
    Ok(())
}

pub(super) fn parallel(
    setup: &mut Setup<'_>,
    meter: &mut PhaseMeter<'_>,
    huge: bool,
) -> Result<(), Trouble> {
    let file = setup.disk.open(IoMode::Direct)?;
    let (buffer, mapping) = meter.load(|| parallel_reads::load(file, setup.len(), huge))?;
    meter.compare(&buffer)?;
    meter.close(|| drop((mapping, buffer)));
    Ok(())
}
