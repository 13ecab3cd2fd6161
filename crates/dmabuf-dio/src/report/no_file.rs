// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports of what has no file of this machine at its other end.

use super::measure::Before;
use super::{Mode, Report};
use crate::direction::Direction;

impl Report {
    /// Before anything is measured. The CPU copies all bytes.
    pub(crate) fn of_no_file(operation: Direction, mode: Mode, evidence: &str, bytes: u64) -> Self {
        Self {
            operation,
            backend: None,
            buffer: None,
            mode,
            evidence: evidence.into(),
            bytes,
            copied_bytes: bytes,
            seconds: 0.0,
            cpu_seconds: 0.0,
            gb_per_second: 0.0,
            page_cache_grown: None,
            storage_bytes: None,
            page_size: None,
            huge_bytes: None,
            numa: None,
            nodes: None,
            locked: false,
            segments: None,
            dma: None,
            fetched: None,
            notes: Vec::new(),
            refusals: Vec::new(),
        }
    }

    /// Records what it cost.
    pub(crate) fn cost_of_no_file(&mut self, before: &Before) {
        let (elapsed, cpu, storage) = before.of_no_file(self.operation);
        self.seconds = elapsed.as_secs_f64();
        self.cpu_seconds = cpu.as_secs_f64();
        self.storage_bytes = storage;
        if self.seconds > 0.0 {
            self.gb_per_second = self.bytes as f64 / self.seconds / 1e9;
        }
    }
}
