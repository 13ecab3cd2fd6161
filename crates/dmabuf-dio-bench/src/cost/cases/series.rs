// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cases for the patch series.

use dmabuf_dio::Direction;

use super::Setup;
use crate::buffer::devices::allocate_and_read;
use crate::buffer::devices::open_heap;
use crate::buffer::transfer::{Mover, TransferMethod};
use crate::buffer::{Buffer, BufferKind, Maker};
use crate::cost::meter::PhaseMeter;
use crate::disk::IoMode;
use crate::measure::outcome::Trouble;
use crate::measure::outcome::whole;

/// `before`: whether the buffer has been copied to before, so that a kernel may have kept it mapped.
fn copy_to(
    setup: &Setup<'_>,
    meter: &mut PhaseMeter<'_>,
    kind: BufferKind,
    before: bool,
) -> Result<(), Trouble> {
    let file = setup.disk.open(IoMode::Direct)?;
    let maker = Maker::new(kind)?;
    let mover = Mover::new(TransferMethod::CopyFileRange, Direction::Load)?;
    let buffer = meter.allocation(|| {
        let buffer = maker.make(setup.len())?;
        if before {
            mover.run(file, kind, std::slice::from_ref(&buffer))?;
        }
        Ok(buffer)
    })?;
    meter.io(|| mover.run(file, kind, std::slice::from_ref(&buffer)))?;
    meter.compare(&buffer)?;
    meter.close(|| drop(buffer));
    Ok(())
}

pub(super) fn copy_again(setup: &mut Setup<'_>, meter: &mut PhaseMeter<'_>) -> Result<(), Trouble> {
    copy_to(setup, meter, BufferKind::DmaBuf, true)
}

pub(super) fn copy_to_heap(
    setup: &mut Setup<'_>,
    meter: &mut PhaseMeter<'_>,
) -> Result<(), Trouble> {
    copy_to(setup, meter, BufferKind::DmaBuf, false)
}

pub(super) fn copy_to_udmabuf(
    setup: &mut Setup<'_>,
    meter: &mut PhaseMeter<'_>,
) -> Result<(), Trouble> {
    copy_to(setup, meter, BufferKind::Udmabuf, false)
}

pub(super) fn heap_flag(setup: &mut Setup<'_>, meter: &mut PhaseMeter<'_>) -> Result<(), Trouble> {
    let file = setup.disk.open(IoMode::Direct)?;
    let heap = open_heap()?;
    let (fd, done) = meter.load(|| allocate_and_read(&heap, setup.len(), file))?;
    whole("DMA_HEAP_FLAG_READ_FILE", done, setup.len())?;
    let buffer = Buffer::of_dmabuf(fd, setup.len());
    meter.compare(&buffer)?;
    meter.close(|| drop(buffer));
    Ok(())
}
