// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transfers on a simulated device, byte by byte, whatever is short, interrupted or out of order.

use std::os::fd::AsFd as _;

use proptest::collection::vec;
use proptest::prelude::*;

use super::plan::Plan;
use super::{Job, Stop};
use crate::control::{Control, Watch};
use crate::drawn::{holds, maybe, one_of};
use crate::errno::Errno;
use crate::file::extent::Extent;

/// A byte of the buffer that nothing was read to.
const UNTOUCHED: u8 = 0xee;

/// The file's byte at an offset, never [`UNTOUCHED`].
fn byte(at: u64) -> u8 {
    ((at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) % 0xee) as u8
}

/// A transfer, and the device that answers its requests.
#[derive(Clone, Debug)]
struct Draw {
    extent: Extent,
    /// Bytes at the end of the extent that are not needed.
    spare: u64,
    chunk: u64,
    /// The buffer is in pieces of so many bytes; a request is in one of them.
    room: u64,
    depth: usize,
    /// The file ends so many bytes after the start of the extent.
    end: u64,
    /// Reading this byte of the extent fails.
    bad: Option<u64>,
    answers: Vec<(usize, Answer)>,
}

#[derive(Clone, Copy, Debug)]
enum Answer {
    Interrupted,
    Again,
    /// This much of it, in 256ths.
    Part(u8),
    Whole,
}

fn draws() -> impl Strategy<Value = Draw> {
    let extent = (0_u64..9000, 0_u64..5000, 1_u64..20_000).prop_map(|(file, buf, len)| Extent {
        file,
        buf,
        len,
    });
    let sizes = (1_u64..6000, one_of![Just(u64::MAX), 1_u64..5000], 1_usize..6, 0_u64..600);
    let answer = one_of![
        1 => Just(Answer::Interrupted),
        1 => Just(Answer::Again),
        1 => any::<u8>().prop_map(Answer::Part),
        4 => Just(Answer::Whole),
    ];
    let end = one_of![3 => Just(u64::MAX), 1 => 0_u64..20_000];
    let bad = maybe(2, 0_u64..20_000);
    let answers = vec((0_usize..6, answer), 0..60);
    (extent, sizes, end, bad, answers).prop_map(
        |(extent, (chunk, room, depth, spare), end, bad, answers)| Draw {
            extent,
            spare: spare.min(extent.len - 1),
            // Few enough requests to be over soon.
            chunk: chunk.max(extent.len / 64 + 1),
            room: room.max(extent.len / 64 + 1),
            depth,
            end,
            bad,
            answers,
        },
    )
}

impl Draw {
    fn needed(&self) -> u64 {
        self.extent.len - self.spare
    }

    fn limit(&self, offset: u64) -> u64 {
        (offset / self.room).saturating_add(1).saturating_mul(self.room)
    }

    /// Answers a request, and stores the bytes of the file.
    fn answer(&self, request: Extent, answer: Answer, buffer: &mut [u8]) -> Result<u64, Errno> {
        let failed = |number| Err(Errno::from_raw(number));
        let from = request.file - self.extent.file;
        let there = self.end.saturating_sub(from).min(request.len);
        if self.bad.is_some_and(|bad| (from..from + there).contains(&bad)) {
            return failed(libc::EIO);
        }
        let moved = match answer {
            Answer::Interrupted => return failed(libc::EINTR),
            Answer::Again => return failed(libc::EAGAIN),
            Answer::Part(part) if there > 0 => (there * u64::from(part) / 256).max(1),
            Answer::Part(_) | Answer::Whole => there,
        };
        let places = &mut buffer[request.buf as usize..(request.buf + request.len) as usize];
        for (place, at) in places.iter_mut().zip(request.file..request.file + moved) {
            *place = byte(at);
        }
        Ok(moved)
    }

    /// Whether a request is a part of the extent, in one piece of the buffer.
    fn check(&self, request: Extent) {
        let extent = self.extent;
        assert!(request.len > 0 && request.len <= self.chunk, "{request:?}");
        assert_eq!(request.buf - extent.buf, request.file - extent.file, "{request:?}");
        assert!(
            request.file >= extent.file && request.buf_end() <= extent.buf_end(),
            "{request:?}"
        );
        assert!(request.buf_end() <= self.limit(request.buf), "{request:?}");
    }
}

#[cfg_attr(test, test)]
pub(crate) fn all_bytes_that_are_said_to_be_done_are_the_files() {
    let file = std::io::stdin();
    holds(&draws(), |draw| {
        let (extent, control) = (draw.extent, Control::default());
        let watch = Watch::start(&control, draw.needed());
        let job = Job {
            needed_end: extent.file + draw.needed(),
            chunk: draw.chunk,
            ..Job::of(file.as_fd(), extent, &watch)
        };
        let mut buffer = vec![UNTOUCHED; extent.buf_end() as usize + 8];
        let mut plan = Plan::new(&job);
        let (mut flying, mut answers) = (Vec::new(), draw.answers.iter());
        let mut before = 0;
        for made in 0.. {
            assert!(made < 10_000, "it does not end");
            while flying.len() < draw.depth {
                let Some(request) = plan.next(|offset| draw.limit(offset)) else { break };
                draw.check(request);
                plan.start(request);
                flying.push(request);
            }
            assert_eq!(plan.is_idle(), flying.is_empty() && plan.done() >= draw.needed());
            if flying.is_empty() {
                break;
            }
            // Requests are over in any order.
            let (which, answer) = answers.next().copied().unwrap_or((0, Answer::Whole));
            let request = flying.swap_remove(which % flying.len());
            plan.complete(request, draw.answer(request, answer, &mut buffer));
            let done = plan.done();
            assert!(done >= before, "it was {before}, and is {done}");
            for at in before..done.min(draw.needed()) {
                let found = buffer[(extent.buf + at) as usize];
                assert_eq!(found, byte(extent.file + at), "byte {at} of {done}");
            }
            before = done;
        }
        let places = extent.buf as usize..extent.buf_end() as usize;
        let outside = |at: &usize| !places.contains(at) && buffer[*at] != UNTOUCHED;
        assert_eq!((0..buffer.len()).find(outside), None);
        let is_whole = draw.end >= draw.needed();
        let reached = draw.bad.filter(|bad| *bad < draw.end.min(extent.len));
        match plan.finish() {
            Ok(()) => {
                assert!(is_whole && reached.is_none_or(|bad| bad >= draw.needed()), "{draw:?}");
                assert!(watch.done() == draw.needed(), "{} are counted", watch.done());
            }
            Err(Stop::Short { end }) => {
                assert!(!is_whole, "the file does not end");
                assert!(end >= extent.file + draw.end, "it ends later than {end}");
                assert!(before <= draw.end);
            }
            Err(Stop::Failed { offset, errno, done }) => {
                assert_eq!((errno.raw(), done), (libc::EIO, before));
                let bad = extent.file + reached.expect("a bad byte");
                assert!((offset..offset + draw.chunk).contains(&bad), "{bad} is not at {offset}");
                assert!(extent.file + done <= bad);
            }
            Err(stop) => panic!("{stop:?}"),
        }
    });
}
