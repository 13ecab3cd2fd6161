// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls of the library, of its keeper and of its streams, against the model that the module's calls have.
//!
//! A buffer is named by its place: those of the round come first, those that the library has loaded
//! follow.

pub(crate) mod gather;
pub(crate) mod held;
pub(crate) mod keep;
pub(crate) mod kept;
pub(crate) mod killed;
pub(crate) mod load;
pub(crate) mod place;
pub(crate) mod save;
pub(crate) mod saved;
pub(crate) mod settings;
pub(crate) mod stream;
pub(crate) mod views;

use dmabuf_dio::Errno;

use crate::disturb::beside;
use crate::fault::{Armed, Fault};
use crate::judge::Span;
use crate::ops::Op;
use crate::pages::{PAGE, is_multiple};
use crate::transfer::may_fail;
use crate::world::{DISK, Outcome, World};
use settings::Settings;

/// Runs one of these operations; `None`: it is another.
#[rustfmt::skip]
pub(crate) fn run(world: &mut World<'_>, op: &Op) -> Option<Outcome> {
    Some(match *op {
        Op::LibLoad { held, kind, file, at, length, backend, block, depth, step, direct, cancel } =>
            load::load(world, held, kind, Span { file, at, offset: 0, length, direct },
                &Settings { step, ..Settings::new(backend, block, depth, direct, cancel) }),
        Op::LibLoadInto { place, file, at, offset, length, backend, block, depth, direct, cancel } =>
            load::load_into(world, place, Span { file, at, offset, length, direct },
                &Settings::new(backend, block, depth, direct, cancel)),
        Op::LibDrop { held } => { if let Some(held) = world.held.get_mut(held as usize) { *held = None; } Ok(()) }
        Op::LibView { place, offset, length, stamp } => views::view(world, place, offset, length, stamp),
        Op::LibGather { place, file, seed, count, spare, overlap, backend, depth, direct } =>
            gather::gather(world, place, gather::Asked { file, seed, count, spare, overlap }, (backend, depth, direct)),
        Op::LibSave { name, place, offset, length, backend, block, depth, direct, cancel } =>
            save::replace(world, name, (place, offset, length), &Settings::new(backend, block, depth, direct, cancel)),
        Op::LibSaveIn { place, file, at, offset, length, backend, block, depth, direct, cancel } =>
            save::in_place(world, place, Span { file, at, offset, length, direct },
                &Settings::new(backend, block, depth, direct, cancel)),
        Op::LibSaveFrom { name, length, stamp, stop, block, depth, direct, cancel } =>
            save::from_reader(world, name, (length, stamp, stop), &Settings::new(0, block, depth, direct, cancel)),
        Op::LibSaveSmall { place, offset, length, left, direct } => save::small(world, (place, offset, length), left, direct),
        Op::Keep { kept, name, direct, cancel } => keep::keep(world, kept, name, direct, cancel),
        Op::KeepDrop { kept } => keep::forget(world, kept),
        Op::KeepHold { name, devices } => keep::hold(world, name, devices != 0),
        Op::Capture { name, frames, block, blocks, rate, loss, copied, cancel } =>
            stream::capture(world, name, loss, &stream::Flow { frames, block, blocks, rate, copied: copied != 0, cancel }),
        Op::Replay { name, frames, block, blocks, rate, copied, cancel } =>
            stream::replay(world, name, &stream::Flow { frames, block, blocks, rate, copied: copied != 0, cancel }),
        Op::CaptureKilled { microseconds } => killed::capture(world, microseconds),
        _ => return None,
    })
}

/// Makes a call of the library while something happens that nobody may notice: signals, a freeze, threads.
fn during<T>(world: &World<'_>, armed: Armed, call: impl FnOnce() -> T) -> T {
    let fault = match armed {
        Armed::Signal(microseconds) => Fault::Signal(microseconds),
        Armed::Freeze { microseconds, how } => Fault::Freeze { microseconds, how },
        // Then the library does without what it did not get.
        Armed::Nothing | Armed::FailEach => Fault::None,
    };
    beside(world, || fault.around(call).0)
}

/// Could the disk be the reason for EIO? Partial blocks go through the page cache, which reads more.
fn may_fail_anyhow(world: &World<'_>, span: Span) -> bool {
    let whole = [span.at, span.length, span.offset].iter().all(|at| is_multiple(*at, PAGE as u64));
    may_fail(world, Span { direct: u64::from(whole && span.direct != 0), ..span })
}

/// Is this the disk's error, and may it have it?
fn is_of_the_disk(world: &World<'_>, span: Span, errno: Errno) -> bool {
    span.file == DISK && errno.raw() == libc::EIO && may_fail_anyhow(world, span)
}
