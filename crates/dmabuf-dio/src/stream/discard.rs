// SPDX-License-Identifier: MIT OR Apache-2.0
//! A sink that looks at nothing: for measurements of a source.

use std::collections::VecDeque;
use std::sync::Arc;

use rustix::event::PollFd;

use super::ring::Ring;
use super::{Filled, Sink};
use crate::error::Result;

/// Gives every block back at once.
#[derive(Debug, Default)]
pub struct Discard(VecDeque<Filled>);

impl Sink for Discard {
    fn how(&self) -> String {
        "discarded".into()
    }

    fn attach(&mut self, _: &Arc<Ring>, _: Option<u64>) -> Result<()> {
        Ok(())
    }

    fn queue(&mut self, filled: Filled) -> Result<()> {
        self.0.push_back(filled);
        Ok(())
    }

    fn take(&mut self) -> Result<Option<Filled>> {
        Ok(self.0.pop_front())
    }

    fn ready(&self) -> Option<PollFd<'_>> {
        None
    }

    fn queued(&self) -> usize {
        self.0.len()
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}
