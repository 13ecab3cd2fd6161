// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeps a number of reads in flight, with any engine.

use rustix::io::Errno as Os;

use crate::outcome::Trouble;

/// Submits requests, each of which has been queued with a mark.
pub(crate) trait Engine {
    /// Submits the queued requests and waits for some completions, of which `arrived` gets mark and result.
    fn turn(&mut self, least: u32, arrived: impl FnMut(u64, i32)) -> Result<(), Trouble>;

    /// Why a read failed.
    fn failure(&self, errno: Os) -> Trouble;
}

/// The mark of a request for so many bytes. `tag` is one that no request in flight has.
pub(crate) fn mark(tag: u32, len: u32) -> u64 {
    u64::from(len) << 32 | u64::from(tag)
}

/// Keeps `depth` requests in flight, and waits for `batch` of them at a time. `next` gets a tag and queues a request with its
/// mark, until it returns that there is none. After a failure it is not asked again, but the requests in flight are
/// waited for, as they still write into the memory.
pub(crate) fn keep_in_flight<E: Engine>(
    engine: &mut E,
    depth: u32,
    batch: u32,
    mut next: impl FnMut(&mut E, u32) -> Result<bool, Trouble>,
) -> Result<(), Trouble> {
    let mut free: Vec<u32> = (0..depth).rev().collect();
    let mut failed = None;
    loop {
        while failed.is_none() {
            let Some(&tag) = free.last() else { break };
            if !next(engine, tag)? {
                break;
            }
            free.pop();
        }
        let in_flight = depth - free.len() as u32;
        if in_flight == 0 {
            break;
        }
        engine.turn(batch.min(in_flight), |mark, result| {
            free.push(mark as u32);
            let len = (mark >> 32) as i32;
            if result != len {
                failed.get_or_insert((result, len));
            }
        })?;
    }
    match failed {
        None => Ok(()),
        Some((result, len)) if result >= 0 => {
            Err(Trouble::short("a read", result as u64, len as u64))
        }
        Some((result, _)) => Err(engine.failure(Os::from_raw_os_error(-result))),
    }
}
