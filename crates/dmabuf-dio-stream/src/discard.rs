// SPDX-License-Identifier: MIT OR Apache-2.0
//! A sink that ignores the data, for measuring a source.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::ends::{Facts, Pending, Sink};
use crate::error::Result;
use crate::ring::{BlockRing, Filled, attached};

/// Returns every block at once.
#[derive(Debug, Default)]
pub struct Discard {
    ring: Option<Arc<BlockRing>>,
    queued: VecDeque<Filled>,
}

impl Sink for Discard {
    fn facts(&self) -> Facts {
        Facts::new("discarded")
    }

    fn attach(&mut self, ring: &Arc<BlockRing>, _: Option<u64>) -> Result<()> {
        self.ring = Some(Arc::clone(ring));
        Ok(())
    }

    fn attach_more(&mut self, _: usize) -> Result<bool> {
        Ok(true)
    }

    fn queue(&mut self, filled: Filled) -> Result<bool> {
        let claim = attached(self.ring.as_ref(), "the sink")?.claim(filled)?;
        self.queued.push_back(claim.filled());
        Ok(false)
    }

    fn take(&mut self) -> Result<Option<Filled>> {
        Ok(self.queued.pop_front())
    }

    fn pending(&self) -> Pending<'_> {
        Pending { blocks: self.queued.len(), ready: None }
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}
