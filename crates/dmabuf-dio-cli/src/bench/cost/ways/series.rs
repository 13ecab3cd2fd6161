// SPDX-License-Identifier: MIT OR Apache-2.0
//! By what the patch series adds to the kernel.

use super::Setup;
use crate::bench::buffers::{Buffer, Kind, Maker, open_heap};
use crate::bench::cost::meter::{Meter, whole};
use crate::bench::disk::Mode;
use crate::bench::schemes::allocate_and_read;
use crate::bench::trouble::Trouble;
use crate::bench::ways::{Direction, Mover, Way};

fn copy_to(setup: &Setup<'_>, meter: &mut Meter<'_>, kind: Kind) -> Result<(), Trouble> {
    let file = setup.disk.open(Mode::Direct)?;
    let maker = Maker::new(kind)?;
    let mover = Mover::new(Way::CopyFileRange, Direction::Read)?;
    let buffer = meter.allocation(|| maker.make(setup.len()))?;
    meter.io(|| mover.run(file, kind, std::slice::from_ref(&buffer)))?;
    meter.compare(&buffer)?;
    meter.close(|| drop(buffer));
    Ok(())
}

pub(super) fn copy_to_heap(setup: &mut Setup<'_>, meter: &mut Meter<'_>) -> Result<(), Trouble> {
    copy_to(setup, meter, Kind::DmaBuf)
}

pub(super) fn copy_to_udmabuf(setup: &mut Setup<'_>, meter: &mut Meter<'_>) -> Result<(), Trouble> {
    copy_to(setup, meter, Kind::Udmabuf)
}

pub(super) fn heap_flag(setup: &mut Setup<'_>, meter: &mut Meter<'_>) -> Result<(), Trouble> {
    let file = setup.disk.open(Mode::Direct)?;
    let heap = open_heap()?;
    let (fd, done) = meter.load(|| allocate_and_read(&heap, setup.len(), file))?;
    whole("DMA_HEAP_FLAG_READ_FILE", done, setup.len())?;
    let buffer = Buffer::of_dmabuf(fd, setup.len());
    meter.compare(&buffer)?;
    meter.close(|| drop(buffer));
    Ok(())
}
