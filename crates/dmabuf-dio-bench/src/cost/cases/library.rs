// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cases for the library: the total cost for its users.

use std::os::fd::AsFd;

use dmabuf_dio::{Backend, Buffer, Error, Kind, Loader};

use super::{MIB, Setup};
use crate::cost::meter::PhaseMeter;
use crate::disk::IoMode;
use crate::measure::outcome::whole;
use crate::measure::outcome::{Status, Trouble};
use crate::pattern::{Difference, POISON, Pattern};

/// Bytes copied and zeroed per byte of the file.
pub(super) fn moves(backend: Backend) -> [f64; 2] {
    match backend {
        Backend::Module | Backend::Heap => [0.0, 0.0],
        Backend::Buffered => [1.0, 1.0],
        _ => [0.0, 1.0],
    }
}

pub(super) fn load(
    setup: &mut Setup<'_>,
    meter: &mut PhaseMeter<'_>,
    backend: Option<Backend>,
    kind: Kind,
) -> Result<(), Trouble> {
    let file = setup.disk.open(IoMode::Buffer)?;
    let loader = Loader::from_fd(file.as_fd()).backend(backend).kind(kind);
    let mut loaded = meter.load(|| loader.load()).map_err(|error| trouble(&error))?;
    whole("Loader::load", loaded.data_len(), setup.len())?;
    meter.compare_with(|content| compare(&mut loaded, content).map_err(|error| trouble(&error)))?;
    meter.close(|| drop(loaded));
    Ok(())
}

/// Compares every byte and overwrites it.
fn compare(loaded: &mut Buffer, content: Pattern) -> Result<Result<(), Difference>, Error> {
    let (start, len) = (loaded.data_offset(), loaded.data_len());
    let mut map = loaded.map_mut()?;
    let mut bytes = vec![0; MIB as usize];
    for at in (0..len).step_by(bytes.len()) {
        let piece = &mut bytes[..MIB.min(len - at) as usize];
        map.read_at(start + at, piece)?;
        if let Err(difference) = content.check(piece, at) {
            return Ok(Err(difference));
        }
    }
    map.fill_at(start, len, POISON)?;
    Ok(Ok(()))
}

fn trouble(error: &Error) -> Trouble {
    let Error::Unavailable { refusals, .. } = error else {
        return Trouble::new(Status::Failed, error.to_string());
    };
    let errno = refusals.iter().find_map(|refusal| refusal.errno);
    let reason = errno.map_or_else(|| error.to_string(), |errno| format!("{error}: {errno}"));
    Trouble { status: Status::Unavailable, reason, errno }
}
