// SPDX-License-Identifier: MIT OR Apache-2.0
//! The staging memory of a transfer: a window that moves over its bytes.

use std::sync::Arc;

use super::task::Task;
use crate::error::Result;
use crate::memory::Mapping;
use crate::memory::available::{self, Charged};
use crate::memory::page::{page_size, round_up};

/// Requests that fit beyond those in flight, so that the next one need not wait for a copy.
const SPARE: u64 = 2;
/// Maximum size, unless three requests are larger.
const MOST: u64 = 64 << 20;
/// Bytes copied at a time.
pub(super) const STEP: u64 = 4 << 20;

/// Memory for some of the bytes of a transfer at a time. A byte's position in it is congruent to its
/// offset, modulo the page size and the file's block size.
#[derive(Clone, Debug)]
pub(super) struct Window {
    pub(super) memory: Arc<Mapping>,
    /// Where the bytes of the transfer end.
    pub(super) end: u64,
}

impl Window {
    /// Allocates one for bytes up to `end`, beside a buffer of `buffer` bytes.
    pub(super) fn new(task: &Task<'_>, end: u64, buffer: u64) -> Result<Self> {
        let chunks = (u64::from(task.depth()) + SPARE).min((MOST / task.chunk()).max(1 + SPARE));
        let unit = page_size().max(task.file.align.offset);
        let whole = |len| round_up(len, unit).unwrap_or(len);
        let len = whole(end).min(whole(task.chunk() * chunks));
        available::ensure(buffer.saturating_add(len), Charged::Us)?;
        let memory = Mapping::anonymous(len)?;
        memory.advise(task.options.huge_pages);
        Ok(Self { memory: Arc::new(memory), end })
    }

    pub(super) fn len(&self) -> u64 {
        self.memory.len()
    }

    /// Position of a byte in the memory, and the end of the range that is contiguous there.
    pub(super) fn place(&self, offset: u64) -> (u64, u64) {
        let at = offset % self.len();
        (at, (offset - at + self.len()).min(self.end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{Control, Watch};
    use crate::direction::Direction;
    use crate::file::{File, Spec};
    use crate::options::Options;

    #[test]
    fn window_holds_requests_in_flight_and_two_more() {
        let path = "/proc/self/exe".into();
        let file = File::open(&Spec::Path(path), Direction::Load, false).expect("a file");
        let window = |chunk: u64, depth, len| {
            let options =
                Options { block_size: Some(chunk), queue_depth: Some(depth), ..Options::default() };
            let control = Control::default();
            let watch = Watch::start(&control, len);
            let direction = Direction::Load;
            let task = Task {
                file: &file,
                direction,
                offset: 0,
                length: len,
                options: &options,
                watch: &watch,
            };
            Window::new(&task, len, 0).expect("memory").len()
        };
        assert_eq!(window(1 << 20, 4, 1 << 30), 6 << 20);
        assert_eq!(window(1 << 20, 1024, 1 << 30), 64 << 20, "no more than that");
        assert_eq!(window(48 << 20, 8, 1 << 30), 3 * (48 << 20), "but three requests");
        assert_eq!(
            window(1 << 20, 4, 5000),
            5000_u64.next_multiple_of(page_size()),
            "nor more than the file"
        );
    }
}
