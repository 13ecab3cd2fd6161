// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transfers of one block after the other by a thread, where there are no slots.

use std::sync::{Arc, Mutex, PoisonError};

use super::ring::{Claim, Ring};
use crate::backend::{Backend, Refusal};
use crate::control::Watch;
use crate::error::{Attempt, Direction, Error, Result};
use crate::file::File;
use crate::options::Options;
use crate::via::{self, Task};

/// The file, the blocks, and the backend that works for them.
#[derive(Debug)]
pub(super) struct Calls {
    file: Arc<File>,
    ring: Arc<Ring>,
    direction: Direction,
    options: Options,
    tried: Mutex<Tried>,
}

#[derive(Debug)]
struct Tried {
    /// Why not by slots, and why not by others that come before the one that works.
    refusals: Vec<Refusal>,
    chosen: Option<Backend>,
}

impl Calls {
    /// `refusal`: why there are no slots.
    pub(super) fn new(
        file: &Arc<File>,
        ring: &Arc<Ring>,
        direction: Direction,
        refusal: Refusal,
    ) -> Self {
        Self {
            file: Arc::clone(file),
            ring: Arc::clone(ring),
            direction,
            // One request after the other: what is in the file is never behind a hole.
            options: Options { queue_depth: Some(1), ..Options::default() },
            tried: Mutex::new(Tried { refusals: vec![refusal], chosen: None }),
        }
    }

    /// Moves a block from or to a place in the file. Blocks until it is there.
    pub(super) fn transfer(&self, claim: Claim, offset: u64) -> Result<()> {
        let watch = Watch::start(&self.options.control, claim.bytes());
        let task = Task {
            file: &self.file,
            direction: self.direction,
            offset,
            length: claim.bytes(),
            options: &self.options,
            watch: &watch,
        };
        let block = self.ring.block(claim.block());
        let mut tried = self.tried.lock().unwrap_or_else(PoisonError::into_inner);
        let chosen = tried.chosen;
        let order = Backend::for_existing(block.kind());
        for &backend in chosen.as_ref().map_or(order, std::slice::from_ref) {
            if backend == Backend::UringSlot {
                continue;
            }
            match via::transfer(backend, &task, block, 0) {
                Ok(_) => {
                    tried.chosen = Some(backend);
                    return Ok(());
                }
                Err(Attempt::Failed(error)) => return Err(error),
                Err(Attempt::Refused(refusal)) => tried.refusals.push(refusal),
            }
        }
        Err(Error::Unavailable { asked: None, kind: None, refusals: tried.refusals.clone() })
    }

    pub(super) fn how(&self) -> String {
        let tried = self.tried.lock().unwrap_or_else(PoisonError::into_inner);
        let why = tried.refusals.first().map_or("", |refusal| &*refusal.reason);
        match tried.chosen {
            Some(Backend::Buffered) => format!("copied by the CPU: {why}"),
            Some(backend) => format!("{backend}, a block at a time: {why}"),
            None => "a file".into(),
        }
    }
}
