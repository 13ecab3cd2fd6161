// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a save costs whose target is no file.

use crate::buffer::Buffer;
use crate::content::no_backend;
use crate::direction::Direction;
use crate::error::Result;
use crate::options::Options;
use crate::report::measure::Before;
use crate::report::{Mode, Report};

/// A save of a buffer to what is no file of this machine, while it is made: measures what it costs. This crate sends
/// nothing itself, as it fetches nothing.
#[derive(Debug)]
pub struct Sending(Before);

impl Sending {
    /// Starts to measure.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`](crate::Error::Unavailable) if the options have a backend: none moves data here.
    pub fn start(options: &Options) -> Result<Self> {
        match options.backend {
            Some(backend) => Err(no_backend(backend)),
            None => Ok(Self(Before::without_cache())),
        }
    }

    /// The report, once `length` bytes of the buffer were sent, each of which was copied.
    pub fn end(self, buffer: &Buffer, length: u64) -> Report {
        let evidence = "it is no file: neither storage nor the page cache was written for it";
        let mut report = Report::of_no_file(Direction::Save, Mode::Sent, evidence, length);
        report.cost_of_no_file(&self.0);
        report.buffer = Some(buffer.kind());
        report
    }
}
