// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs operations, one after the other, and compares what they leave.

use crate::buffer;
use crate::changing::{self, Cut};
use crate::clone;
use crate::device;
use crate::fault::Armed;
use crate::file::{self, Known};
use crate::freezer::Still;
use crate::full;
use crate::judge::Span;
use crate::library;
use crate::limit;
use crate::load::{self, Shape};
use crate::machine::Machine;
use crate::memory;
use crate::module;
use crate::ops::Op;
use crate::process::{self, End, Means};
use crate::slot;
use crate::state::State;
use crate::store;
use crate::together;
use crate::transfer::{self, How};
use crate::unplug::{self, Pull};
use crate::world::{DISK, Outcome, Stalled, World};

/// Something that must not be.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    /// The operation after which it was seen; `None`: after the round.
    pub(crate) op: Option<usize>,
    pub(crate) what: String,
}

/// Runs a sequence and gives everything back.
pub(crate) fn sequence(machine: &Machine, ops: &[Op]) -> Result<(), Finding> {
    let after = |what| Finding { op: None, what };
    let before = State::look(machine).map_err(after)?;
    let mut world = World::new(machine).map_err(after)?;
    let ended = all(&mut world, ops)
        .and_then(|()| world.check().map_err(after))
        .and_then(|()| library::keep::check(&world).map_err(after));
    drop(world);
    // Also after a failure: what is given back late would be missed by the next sequence.
    let given = before.await_again(machine).map_err(after);
    ended.and(given)
}

fn all(world: &mut World<'_>, ops: &[Op]) -> Result<(), Finding> {
    let mut place = 0;
    while let Some(op) = ops.get(place) {
        let at = |what| Finding { op: Some(place), what };
        if let Op::Together { count } = op {
            let end = (place + 1 + *count as usize).min(ops.len());
            together::run(world, &ops[place + 1..end]).map_err(at)?;
            world.stalled = None;
            place = end;
            continue;
        }
        one(world, op).map_err(at)?;
        if !matches!(
            op,
            Op::Beside { .. } | Op::Signal { .. } | Op::Freeze { .. } | Op::FailEach {}
        ) {
            world.beside = None;
        }
        if !matches!(op, Op::Fence { .. } | Op::Signal { .. } | Op::Freeze { .. }) {
            world.fence = None;
        }
        if !matches!(op, Op::Stall {} | Op::StallFiles {}) {
            world.stalled = None;
        }
        place += 1;
    }
    Ok(())
}

#[rustfmt::skip]
fn one(world: &mut World<'_>, op: &Op) -> Outcome {
    match *op {
        Op::Store { store, pages } => store::create(world, store, pages, false),
        Op::StoreHuge { store, stamp } => store::huge(world, store, stamp),
        Op::StoreSeal { store } => store::seal(world, store),
        Op::StoreWrite { store, page, pages, stamp } => store::write(world, store, page, pages, stamp, false),
        Op::StoreMapWrite { store, page, pages, stamp } => store::write(world, store, page, pages, stamp, true),
        Op::StoreScatter { store, store2, stamp } => store::scatter(world, store, store2, stamp),
        Op::StoreTouch { store, page, pages } => store::touch(world, store, page, pages),
        Op::StoreAllocate { store, page, pages } => store::allocate(world, store, page, pages),
        Op::StorePunch { store, page, pages } => store::punch(world, store, page, pages),
        Op::StoreOut { store } => store::out(world, store),
        Op::StoreCollapse { store } => store::collapse(world, store),
        Op::StoreClose { store } => { world.stores[store as usize] = None; Ok(()) }

        Op::Heap { buf, pages } => buffer::of_heap(world, buf, pages),
        Op::Udmabuf { buf, store, page, pages } => buffer::of_memfd(world, buf, store, page, pages),
        Op::UdmabufPair { buf, store, page, pages, store2, page2, pages2 } =>
            buffer::of_memfds(world, buf, (store, page, pages), (store2, page2, pages2)),
        Op::Odd { buf, pages, oddities } => { buffer::odd(world, buf, pages, oddities); Ok(()) }
        Op::Load { buf, file, at, length, chunk, depth, gather, direct, writable, other } =>
            load::load(world, buf, Span { file, at, offset: 0, length, direct },
                Shape { chunk, depth, gather, writable: writable != 0, other }),
        Op::LoadOften { length, count } => memory::often(world, length, count),
        Op::LoadTooMuch {} => memory::too_much(world),
        Op::HeapLoad { buf, file, at, length, direct } =>
            load::heap(world, buf, Span { file, at, offset: 0, length, direct }),
        Op::Attach { buf } => buffer::attach(world, buf),
        Op::LoaderClose {} => { world.loader = None; Ok(()) }
        Op::Detach { buf } => buffer::detach(world, buf),
        Op::Close { buf } => buffer::close(world, buf),
        Op::Fill { buf, offset, length, stamp } => buffer::fill(world, buf, offset, length, stamp),

        Op::File { file, length, kind, stamp } => {
            if file < DISK {
                if file::special(&world.machine.folder, kind).is_some() {
                    world.machine.did(if kind == 3 { "file that is encrypted" } else { "file that is compressed" });
                }
                world.files[file as usize] = Some(Known::create(&world.machine.folder, length, kind, stamp)?);
            }
            Ok(())
        }
        Op::FileWrite { file, at, length, stamp } => changed(world, file, |known| {
            let length = if known.disk { length.min((known.bytes.len() as u64).saturating_sub(at)) } else { length };
            known.write(at, &crate::pages::stamp(stamp, at, length as usize))
        }),
        Op::FileTruncate { file, length } => changed(world, file, |known|
            if known.disk { Ok(()) } else { known.truncate(length) }),
        Op::FilePunch { file, at, length } => changed(world, file, |known|
            if known.disk { Ok(()) } else { known.punch(at, length) }),
        Op::FileAllocate { file, at, length } => changed(world, file, |known|
            if known.disk { Ok(()) } else { known.allocate(at, length) }),
        Op::FileClone { file, from, at, source, length } => clone::clone(world, file, from, at, source, length),
        Op::FileUncache { file } => changed(world, file, |known| known.uncache()),
        Op::FileClose { file } => { if file < DISK { world.files[file as usize] = None; } Ok(()) }

        Op::Read { buf, file, at, offset, length, chunk, depth, direct } =>
            transfer::read(world, buf, Span { file, at, offset, length, direct }, How::Module { chunk, depth }),
        Op::Write { buf, file, at, offset, length, chunk, depth, direct } =>
            transfer::write(world, buf, Span { file, at, offset, length, direct }, How::Module { chunk, depth }),
        Op::CopyIn { buf, file, at, offset, length, direct } =>
            transfer::read(world, buf, Span { file, at, offset, length, direct }, How::Copy),
        Op::CopyOut { buf, file, at, offset, length, direct } =>
            transfer::write(world, buf, Span { file, at, offset, length, direct }, How::Copy),

        Op::WriteFull { buf, length, direct, left } => full::write(world, buf, length, direct, left),
        Op::WriteSmall { buf, length, direct, left } => full::write_small(world, buf, length, direct, left),
        Op::ChangedRead { buf, file, at, offset, length, chunk, depth, direct, to, kind } =>
            changing::read(world, buf, Span { file, at, offset, length, direct }, (chunk, depth), Cut::of(to, kind)),
        Op::ChangedWrite { buf, file, at, offset, length, chunk, depth, direct, to } =>
            changing::write(world, buf, Span { file, at, offset, length, direct }, (chunk, depth), to),
        Op::ChangedLoad { buf, file, at, length, direct, to, kind } =>
            changing::load(world, buf, Span { file, at, offset: 0, length, direct }, Cut::of(to, kind)),
        Op::ChildRead { buf, file, at, offset, length, chunk, depth, direct, microseconds, exec } =>
            process::transfer(world, false, buf, Span { file, at, offset, length, direct }, Means::Module(chunk, depth),
                End { microseconds, exec: exec != 0 }),
        Op::ChildWrite { buf, file, at, offset, length, chunk, depth, direct, microseconds, exec } =>
            process::transfer(world, true, buf, Span { file, at, offset, length, direct }, Means::Module(chunk, depth),
                End { microseconds, exec: exec != 0 }),
        Op::ChildSlot { buf, file, at, offset, length, direct, write, microseconds } =>
            process::transfer(world, write != 0, buf, Span { file, at, offset, length, direct }, Means::Slot,
                End { microseconds, exec: false }),
        Op::ChildLoad { buf, file, at, length, direct } =>
            process::load(world, buf, Span { file, at, offset: 0, length, direct }),
        Op::LimitedLoad { buf, length, direct, limit } => limit::load(world, buf, length, direct, limit),
        Op::LimitedRead { length, limit } => limit::read(world, length, limit),
        Op::UnpluggedRead { buf, at, offset, length, chunk, depth, disk, microseconds } =>
            unplug::read(world, buf, Span { file: DISK, at, offset, length, direct: 1 }, (chunk, depth), Pull { disk, microseconds }),
        Op::UnpluggedWrite { buf, at, offset, length, chunk, depth, disk, microseconds } =>
            unplug::write(world, buf, Span { file: DISK, at, offset, length, direct: 1 }, (chunk, depth), Pull { disk, microseconds }),

        Op::Slot { slot, buf, page, length, flags } => slot::register(world, slot, buf, page, length, flags),
        Op::Join { slot, buf, buf2, flags } => slot::join(world, slot, buf, buf2, flags),
        Op::SlotRead { slot, file, at, skip, length, direct } =>
            slot::transfer(world, false, slot, skip, Span { file, at, offset: 0, length, direct }),
        Op::SlotWrite { slot, file, at, skip, length, direct } =>
            slot::transfer(world, true, slot, skip, Span { file, at, offset: 0, length, direct }),
        Op::SlotClear { slot } => slot::clear(world, slot),
        Op::SlotSize { slot, buf } => slot::sizes(world, slot, buf),

        Op::Import { device, buf } => device::import(world, device, buf),
        Op::DeviceRead { device } => device::read(world, device),
        Op::DeviceWrite { device, at, length, stamp } => { device::write(world, device, at, length, stamp); Ok(()) }
        Op::DeviceDrop { device } => device::drop_device(world, device),

        _ => library::run(world, op).unwrap_or_else(|| fault(world, op)),
    }
}

/// What happens to the machine, or during the next operations.
#[rustfmt::skip]
fn fault(world: &mut World<'_>, op: &Op) -> Outcome {
    match *op {
        Op::Break { at, length } => {
            if let Some(file) = world.file(DISK) {
                if world.broken(DISK).is_empty() {
                    file.uncache()?;
                }
            }
            let end = crate::disk::SIZE as u64;
            let part = at.min(end) as usize..(at + length).min(end) as usize;
            world.disk.as_mut().map_or(Ok(()), |disk| disk.fail(part))
        }
        Op::Slow { at, length, milliseconds } => {
            let end = crate::disk::SIZE as u64;
            let part = at.min(end) as usize..(at + length).min(end) as usize;
            world.disk.as_mut().map_or(Ok(()), |disk| disk.slow(part, milliseconds))
        }
        Op::Heal {} => world.disk.as_mut().map_or(Ok(()), |disk| disk.fail(0..0)),
        Op::Signal { microseconds } => { world.armed = Armed::Signal(microseconds); Ok(()) }
        Op::Freeze { microseconds, how } => {
            let how = Still::of(how);
            if how != Still::Suspended || world.machine.suspends { world.armed = Armed::Freeze { microseconds, how }; }
            Ok(())
        }
        Op::Beside { kind, place } => { world.beside = Some((kind, place)); Ok(()) }
        Op::Fence { buf, stores, microseconds } => buffer::fence(world, buf, stores != 0, microseconds),
        Op::Stall {} => { world.stalled = Some(Stalled::Disk); Ok(()) }
        Op::StallFiles {} => { world.stalled = Some(Stalled::Files); Ok(()) }
        Op::Reload { count } => module::reload(world, count),
        // Whoever runs the sequence runs these.
        Op::Together { .. } => Ok(()),
        Op::FailEach {} => {
            if world.machine.fail_nth { world.armed = Armed::FailEach; }
            Ok(())
        }
        _ => Err("nobody runs this operation".into()),
    }
}

/// Changes a file, unless the disk that it is on fails now.
fn changed(
    world: &mut World<'_>,
    file: u64,
    change: impl FnOnce(&mut Known) -> Outcome,
) -> Outcome {
    if !world.broken(file).is_empty() {
        return Ok(());
    }
    world.file_mut(file).map_or(Ok(()), change)
}
