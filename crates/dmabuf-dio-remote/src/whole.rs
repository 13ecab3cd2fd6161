// SPDX-License-Identifier: MIT OR Apache-2.0
//! The SHA-256 of a whole object, taken from the buffer behind the ranges that have arrived.

use dmabuf_dio::Result;
use sha2::{Digest as _, Sha256};

use crate::job::Job;
use crate::sums::hex;
use crate::trouble::{Trouble, failed};

/// Bytes that are hashed at a time.
const PIECE: usize = 1 << 20;

/// Fails if the sum differs. A job that fails otherwise is left to its own error.
pub(crate) fn check(job: &Job<'_>, expected: &[u8; 32]) -> Result<()> {
    let (start, end) = (job.offset, job.offset + job.fill.length());
    let mut hash = Sha256::new();
    let mut piece = vec![0; PIECE];
    let mut at = start;
    while at < end {
        let Some(there) = job.wait_beyond(at) else { return Ok(()) };
        while at < there {
            let some = &mut piece[..PIECE.min((there - at) as usize)];
            job.fill.read(at - start, some)?;
            hash.update(&some);
            at += some.len() as u64;
        }
    }
    let found: [u8; 32] = hash.finalize().into();
    if found == *expected {
        return Ok(());
    }
    let trouble = Trouble::Whole { found: hex(&found) };
    Err(failed(&job.source.name, start..end, &trouble))
}
