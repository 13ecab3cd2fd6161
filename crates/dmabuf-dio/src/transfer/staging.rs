// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads through the staging window, from a simulated device that stores at any time into what it was asked for.

use std::os::fd::AsFd as _;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;

use super::plan::Plan;
use super::ring::Buffer as _;
use super::staged::Stage;
use super::window::Window;
use super::{Job, Progress};
use crate::buffer::shared::Shared;
use crate::control::{Control, Watch};
use crate::drawn::{holds, one_of};
use crate::errno::Errno;
use crate::file::extent::Extent;
use crate::memory::Mapping;
use crate::memory::page::page_size;

/// What the device may store before it stores the file's bytes.
const ANYTHING: u8 = 0xee;

/// The file's byte at an offset, never [`ANYTHING`].
fn byte(at: u64) -> u8 {
    ((at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) % 0xee) as u8
}

/// A load, and how the device answers.
#[derive(Clone, Debug)]
struct Draw {
    /// Pages before the range in the file.
    pages: u64,
    /// Where the range begins in the buffer, and its length.
    start: u64,
    length: u64,
    chunk: u64,
    /// Requests that the window has room for, in pages beyond three.
    room: u64,
    depth: usize,
    /// Bytes of the file behind the range.
    behind: u64,
    /// Which request ends next, and how much of it is read, in 256ths; 0: none, it was interrupted.
    answers: Vec<(usize, u8)>,
}

fn draws() -> impl Strategy<Value = Draw> {
    let sizes = (0_u64..4, 0_u64..4096, 1_u64..60_000);
    let window = (1_u64..4, 0_u64..6, 1_usize..6, 0_u64..5000);
    let answers = vec((0_usize..6, one_of![3 => Just(255), 1 => any::<u8>()]), 0..60);
    (sizes, window, answers).prop_map(
        |((pages, start, length), (chunk, room, depth, behind), answers)| Draw {
            pages,
            start,
            length,
            chunk: chunk * page_size(),
            room,
            depth,
            behind,
            answers,
        },
    )
}

impl Draw {
    /// Reads a part of a request into its place in the window.
    fn answer(&self, part: u8, request: Extent, stage: &Stage<'_>) -> Result<u64, Errno> {
        if part == 0 {
            return Err(Errno::from_raw(libc::EINTR));
        }
        let end = self.pages * page_size() + self.start + self.length + self.behind;
        let there = end.saturating_sub(request.file).min(request.len);
        let moved = (there * (u64::from(part) + 1) / 256).max(1).min(there);
        let bytes: Vec<u8> = (request.file..request.file + moved).map(byte).collect();
        let (_, at, limit) = stage.place(request.buf);
        assert!(request.buf_end() <= limit, "{request:?} is not in one piece");
        stage.window.memory.write(at, &bytes).expect("stored");
        Ok(moved)
    }

    fn run(&self) {
        let (base, end) = (self.pages * page_size(), self.start + self.length);
        let extent = Extent { file: base, buf: 0, len: end.next_multiple_of(page_size()) };
        let buf = Shared::memfd(extent.len).expect("a memfd");
        let room = (3 * self.chunk + self.room * page_size()).min(extent.len);
        let memory = Arc::new(Mapping::anonymous(room).expect("memory"));
        let window = Window { memory, end: extent.len };
        let mut stage = Stage { window, buf: &buf, end, copied: self.start };
        let control = Control::default();
        let watch = Watch::start(&control, self.length);
        let null = std::io::stdin();
        let job = Job {
            needed_end: base + end,
            chunk: self.chunk,
            ..Job::of(null.as_fd(), extent, &watch)
        };
        let mut plan = Plan::new(&job);
        let (mut flying, mut answers) = (Vec::new(), self.answers.iter());
        for made in 0.. {
            assert!(made < 10_000, "it does not end");
            while flying.len() < self.depth {
                let Some(next) = plan.next(|offset| stage.place(offset).2) else { break };
                let so_far = Progress { done: plan.done(), idle: plan.is_idle() };
                let again = plan.repeats();
                if !again && !stage.make_room(next.buf_end(), so_far, || ()).expect("prepared") {
                    assert!(!flying.is_empty(), "nobody makes room for {next:?}");
                    break;
                }
                plan.start(next);
                let anything = vec![ANYTHING; next.len as usize];
                stage.window.memory.write(stage.place(next.buf).1, &anything).expect("stored");
                flying.push(next);
            }
            if flying.is_empty() {
                break;
            }
            let so_far = Progress { done: plan.done(), idle: plan.is_idle() };
            stage.copy_some(so_far, || ()).expect("copied");
            let (which, part) = answers.next().copied().unwrap_or((0, 255));
            let request = flying.swap_remove(which % flying.len());
            plan.complete(request, self.answer(part, request, &stage));
        }
        plan.finish().expect("the file has the range");
        stage.finish(&job).expect("copied");
        let found = buf.map().expect("mapped").to_vec().expect("bytes");
        let wrong = (self.start..end).find(|at| found[*at as usize] != byte(base + at));
        assert_eq!(wrong, None, "the buffer has another byte here");
        assert!(
            found[..self.start as usize].iter().all(|byte| *byte == 0),
            "bytes before the range"
        );
    }
}

#[cfg_attr(test, test)]
pub(crate) fn every_byte_is_copied_before_it_is_read_over() {
    // The device is simulated: it needs no ring.
    holds(&draws(), |draw| draw.run());
}
