// SPDX-License-Identifier: MIT OR Apache-2.0
//! The way of the blocks: from the source to the sink, and back.

use std::time::{Instant, SystemTime};

use super::run::{COUNT, Run};
use super::stream::Stream;
use super::summary::Begin;
use crate::error::Result;
use crate::ring::Filled;

impl Run<'_> {
    /// Queues empty blocks to the source, as many at a time as suit it, unless enough has been
    /// requested.
    pub(super) fn fill(&mut self, mut blocks: &[usize]) -> Result<()> {
        while !blocks.is_empty() && !self.stream.cancel.is_cancelled() {
            let (asked, mut batch) = (self.asked, Vec::with_capacity(blocks.len()));
            for &block in blocks {
                let to_cut = self.stream.cut.map_or(u64::MAX, |cut| cut - self.asked % cut);
                let bytes = self.stream.ring.size().min(self.left()).min(to_cut);
                if bytes > 0 {
                    self.asked += bytes;
                    batch.push(Filled { block, bytes });
                }
            }
            self.asked = asked;
            if batch.is_empty() {
                return Ok(());
            }
            let (count, was_dry) = self.stream.source.queue(&batch)?;
            let was_dry = was_dry && self.begun.is_some();
            blocks = &blocks[count..];
            for filled in &batch[..count] {
                self.asked += filled.bytes;
                self.ledger.queued(filled.bytes, was_dry);
            }
            if was_dry && !self.ledger.waits() {
                self.count()?;
            }
        }
        Ok(())
    }

    /// Gives full blocks to the sink, also those that were full before the source failed.
    pub(super) fn pass_on(&mut self) -> Result<()> {
        if self.span.is_some() && (self.all_asked_for() || self.ledger.is_unread()) {
            // Losses before these blocks have to be known.
            self.count()?;
        }
        let mut full = Vec::new();
        let end = loop {
            match self.stream.source.take() {
                Ok(Some(filled)) => full.push(filled),
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        if let (None, Some(started), Some(first)) = (self.begin, self.started, full.first()) {
            let arrived = SystemTime::now();
            self.begin = Some(Begin { started, arrived, bytes: first.bytes });
        }
        for filled in full {
            let start = self.ledger.taken(filled.bytes);
            if let Some(filled) = self.in_time(start, filled) {
                self.output(filled)?;
            }
        }
        end
    }

    /// Gives a full block to the sink.
    fn output(&mut self, filled: Filled) -> Result<()> {
        let was_dry = self.stream.sink.queue(filled)?;
        self.output.queued(filled.bytes, was_dry);
        if was_dry && !self.output.waits() { self.count_output(false) } else { Ok(()) }
    }

    /// Takes blocks back from the sink and queues them to the source again.
    pub(super) fn take_back(&mut self) -> Result<()> {
        let mut empty = Vec::new();
        while let Some(filled) = self.taken()? {
            empty.push(filled.block);
        }
        self.fill(&empty)
    }

    /// Takes a block back from the sink.
    pub(super) fn taken(&mut self) -> Result<Option<Filled>> {
        let taken = self.stream.sink.take()?;
        if let Some(filled) = taken {
            self.bytes += filled.bytes;
            self.output.taken(filled.bytes);
        }
        Ok(taken)
    }

    /// Adds blocks to the ring while the sink has most of them: later the device would lose frames.
    pub(super) fn grow(&mut self) -> Result<()> {
        let begin = Instant::now();
        while self.grows && begin.elapsed() < COUNT {
            let Stream { source, sink, ring, cancel, .. } = &mut self.stream;
            if 2 * source.pending().blocks >= ring.len() || cancel.is_cancelled() {
                return Ok(());
            }
            let Some(block) = ring.add() else {
                self.grows = false;
                return Ok(());
            };
            self.grows = source.attach_more(block)? && sink.attach_more(block)?;
            if self.grows {
                self.fill(&[block])?;
            }
        }
        Ok(())
    }
}
