// SPDX-License-Identifier: MIT OR Apache-2.0
//! The buffers that the library may use: those of the round by a descriptor, and those that it has loaded.

use dmabuf_dio::{Backend, Buffer};

use super::held::Held;
use crate::judge::one_of;
use crate::pages::{bytes, difference, store};
use crate::world::{BUFFERS, Kind, Outcome, World};

fn held<'w>(world: &'w World<'_>, place: u64) -> Option<&'w Held> {
    world.held.get((place as usize).checked_sub(BUFFERS)?)?.as_ref()
}

/// A descriptor of a buffer. `None` if nothing is there that has one and may be used.
pub(crate) fn open(world: &World<'_>, place: u64) -> Result<Option<Buffer>, String> {
    if let Some(held) = held(world, place) {
        return Ok(held.buffer.try_clone().ok());
    }
    let Some((buffer, _)) = world.attached(place) else { return Ok(None) };
    let Some(fd) = buffer.fd.as_ref().filter(|_| buffer.map.is_some() && !buffer.imported) else {
        return Ok(None);
    };
    let fd = fd.try_clone().map_err(|error| format!("another descriptor: {error}"))?;
    Buffer::from_fd(fd).map(Some).map_err(|error| format!("a buffer of the round: {error}"))
}

/// Without the series, what the CPU stores through a udmabuf over clean pages may be lost.
pub(crate) fn keeps(world: &World<'_>, place: u64, backend: Option<Backend>) -> bool {
    let Some((buffer, _)) = world.attached(place) else { return true };
    let clean = matches!(buffer.kind, Kind::Udmabuf { clean: true, .. });
    !clean || world.machine.series || backend == Some(Backend::Module)
}

/// What its bytes have to be.
pub(crate) fn known(world: &World<'_>, place: u64) -> Vec<u8> {
    match (held(world, place), world.attached(place)) {
        (Some(held), _) => held.bytes.clone(),
        (None, Some((buffer, _))) => bytes(&buffer.pages, 0..buffer.length()),
        (None, None) => Vec::new(),
    }
}

pub(crate) fn seen(world: &World<'_>, place: u64) -> Result<Vec<u8>, String> {
    if let Some(held) = held(world, place) {
        return held.seen();
    }
    let Some((buffer, _)) = world.attached(place) else { return Ok(Vec::new()) };
    Ok(buffer.seen()?.unwrap_or_default())
}

pub(crate) fn note(world: &mut World<'_>, place: u64, at: usize, new: &[u8]) {
    let number = (place as usize).checked_sub(BUFFERS);
    let held = number.and_then(|number| world.held.get_mut(number)?.as_mut());
    if let Some(held) = held {
        held.bytes[at..at + new.len()].copy_from_slice(new);
    } else if let Some((buffer, _)) = world.attached(place) {
        store(&buffer.pages, at, new);
    }
}

/// Takes a transfer into a buffer into the model: `done` bytes of `source` have to be at `at`, and of the
/// rest of the range each byte is the old one, the new one or zero. Nothing else has changed.
pub(crate) fn settle(
    world: &mut World<'_>,
    place: u64,
    at: usize,
    length: usize,
    source: &[u8],
    done: usize,
) -> Outcome {
    let seen = seen(world, place)?;
    let mut expected = known(world, place);
    let end = (at + length).min(expected.len());
    let done = done.min(source.len());
    if at + done <= end {
        expected[at..at + done].copy_from_slice(&source[..done]);
    }
    for index in at + done..end {
        let new = source.get(index - at).copied();
        one_of("behind what was moved", index, seen[index], expected[index], new)?;
        expected[index] = seen[index];
    }
    difference("the buffer", &seen, &expected)?;
    note(world, place, at.min(end), &expected[at.min(end)..end]);
    world.check_buffers()
}
