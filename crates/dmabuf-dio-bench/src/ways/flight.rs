// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeps a number of reads in flight, with any engine.

use rustix::io::Errno as Os;

use crate::outcome::{Result, Trouble, whole};

/// A read of `len` bytes at `offset` of the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) offset: u64,
    /// The address to read to, or, in a slot, the position.
    pub(crate) place: u64,
    pub(crate) len: u32,
    /// Which of the registered buffers, if the engine has some.
    pub(crate) buffer: u16,
}

/// Submits requests.
pub(crate) trait Engine {
    /// Adds a request to those of the next turn, with a mark that comes back with its result.
    ///
    /// # Safety
    ///
    /// Its memory must be valid until it has completed, or the engine is dropped, and hold nothing Rust relies on.
    unsafe fn queue(&mut self, mark: u64, request: Request) -> Result<()>;

    /// Submits the queued requests and waits for some completions, of which `arrived` gets mark and result.
    fn turn(&mut self, least: u32, arrived: impl FnMut(u64, i32)) -> Result<()>;

    /// Why a read failed.
    fn failure(&self, errno: Os) -> Trouble;
}

/// Keeps `depth` requests in flight, and waits for `batch` of them at a time. `next` gets a tag that no request in flight
/// has, and returns a request, or that there is none. After a failure it is not asked again, but the requests in flight
/// are waited for, as they still write into the memory.
///
/// # Safety
///
/// As for [`Engine::queue`], of every request.
pub(crate) unsafe fn keep_in_flight<E: Engine>(
    engine: &mut E,
    depth: u32,
    batch: u32,
    mut next: impl FnMut(u32) -> Result<Option<Request>>,
) -> Result<()> {
    let mut free: Vec<u32> = (0..depth).rev().collect();
    let mut failed = None;
    loop {
        while failed.is_none() {
            let Some(&tag) = free.last() else { break };
            let Some(request) = next(tag)? else { break };
            // SAFETY: as the caller promises.
            unsafe { engine.queue(u64::from(request.len) << 32 | u64::from(tag), request)? };
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
        Some((result, len)) if result >= 0 => whole("a read", result as u64, len as u64),
        Some((result, _)) => Err(engine.failure(Os::from_raw_os_error(-result))),
    }
}
