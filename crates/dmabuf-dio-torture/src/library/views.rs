// SPDX-License-Identifier: MIT OR Apache-2.0
//! Views of buffers, whole and at ranges.

use dmabuf_dio::{Buffer, Error, Kind};

use super::held::Held;
use super::place;
use crate::pages::{difference, stamp as stamped};
use crate::world::{BUFFERS, Outcome, World};

fn failed<E: std::fmt::Display>(error: E) -> String {
    format!("a view: {error}")
}

/// Reads a range and the whole buffer; with a stamp, also writes the range.
pub(crate) fn view(
    world: &mut World<'_>,
    at: u64,
    offset: u64,
    length: u64,
    stamp: u64,
) -> Outcome {
    let known = place::known(world, at);
    let number = (at as usize).checked_sub(BUFFERS).filter(|number| *number < world.held.len());
    // Private memory has no other descriptor.
    let own = number.and_then(|number| world.held[number].take());
    let (mut buffer, own) = match own {
        Some(held) => (held.buffer, Some(held.bytes)),
        None => match place::open(world, at)? {
            Some(buffer) => (buffer, None),
            None => return Ok(()),
        },
    };
    let stamp = if place::keeps(world, at, None) { stamp } else { 0 };
    let result = at_range(world, &mut buffer, &known, offset, length, stamp);
    if let (Some(bytes), Some(number)) = (own, number) {
        world.held[number] = Some(Held { buffer, bytes });
    }
    if let Some(new) = result? {
        place::note(world, at, offset as usize, &new);
    }
    place::settle(world, at, 0, 0, &[], 0)
}

/// Returns what it has written.
fn at_range(
    world: &World<'_>,
    buffer: &mut Buffer,
    known: &[u8],
    offset: u64,
    length: u64,
    stamp: u64,
) -> Result<Option<Vec<u8>>, String> {
    let beyond = offset + length > known.len() as u64;
    let range = (offset as usize).min(known.len())..((offset + length) as usize).min(known.len());
    let mut out = vec![0; length as usize];
    let refused = |result| match result {
        Ok(()) => Err("a range beyond the buffer is not refused".to_owned()),
        Err(Error::RangeBeyondBuffer { .. }) => Ok(()),
        Err(error) => Err(failed(error)),
    };
    let view = buffer.map().map_err(failed)?;
    if view.len() != known.len() as u64 {
        return Err(format!("a view of {} bytes in place of {}", view.len(), known.len()));
    }
    let read = view.read_at(offset, &mut out);
    if beyond {
        refused(read)?;
    } else {
        read.map_err(failed)?;
        difference("a view's range", &out, &known[range.clone()])?;
    }
    difference("a view", &view.to_vec().map_err(failed)?, known)?;
    view.finish().map_err(failed)?;
    if !beyond {
        let mut out = vec![0; length as usize];
        buffer.read_at(offset, &mut out).map_err(failed)?;
        difference("a copy", &out, &known[range.clone()])?;
    }
    if let (Kind::Private, Some(bytes)) = (buffer.kind(), buffer.bytes()) {
        let content = buffer.range();
        difference("the slice", bytes, &known[content.start as usize..content.end as usize])?;
    }
    world.machine.did("view");
    if stamp == 0 {
        return Ok(None);
    }
    let writable = buffer.is_writable();
    let mut view = match buffer.map_mut() {
        Err(Error::ReadOnlyBuffer) if !writable => return Ok(None),
        view => view.map_err(failed)?,
    };
    let new = stamped(stamp, offset, length as usize);
    let written = view.write_at(offset, &new);
    if beyond {
        refused(written)?;
        view.finish().map_err(failed)?;
        return Ok(None);
    }
    written.map_err(failed)?;
    view.finish().map_err(failed)?;
    world.machine.did("view that was written");
    Ok(Some(new))
}
