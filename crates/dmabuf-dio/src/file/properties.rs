// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ranges of a file in a buffer: how they are laid out, cut at blocks, and requested.

use std::os::fd::AsFd as _;

use proptest::prelude::*;

use super::alignment::Alignment;
use super::extent::{Extent, Split};
use crate::control::{Control, Watch};
use crate::drawn::{holds, one_of};
use crate::memory::page::page_size;
use crate::transfer::Job;
use crate::transfer::layout::Layout;
use crate::transfer::plan::Plan;

/// Alignments that file systems tell: blocks of 1 byte to 1 MiB.
fn alignments() -> impl Strategy<Value = Alignment> {
    (0_u32..21, 0_u32..13)
        .prop_map(|(offset, memory)| Alignment { offset: 1 << offset, memory: 1 << memory })
}

/// Small numbers, those around blocks, and large ones.
fn numbers() -> impl Strategy<Value = u64> {
    let around =
        (0_u32..40, 0_u64..7).prop_map(|(shift, more)| (1_u64 << shift) + more - 3.min(more));
    one_of![0_u64..10_000, around, 0_u64..1 << 50]
}

#[cfg_attr(test, test)]
pub(crate) fn ranges_are_cut_at_blocks() {
    let file = std::io::stdin();
    holds(&(alignments(), numbers(), numbers(), numbers(), 1_u64..9), |drawn| {
        let (align, file_at, buf, len, blocks) = drawn;
        let extent = Extent { file: file_at, buf, len: len.max(1) };
        let first = file_at.next_multiple_of(align.offset);
        let last = (file_at + extent.len) / align.offset * align.offset;
        let has_core = first < last;
        let Some(split) = Split::new(extent, align) else {
            // Where only partial blocks are left, the CPU copies them.
            let fits = (buf + (first - file_at)) % align.memory == 0;
            assert!(first < file_at + extent.len && !fits, "{extent:?} can be split");
            return;
        };
        let parts: Vec<Extent> =
            [split.head, split.core, split.tail].into_iter().flatten().collect();
        let mut at = 0;
        for part in &parts {
            assert_eq!((part.file, part.buf), (file_at + at, buf + at), "{split:?}");
            assert!(part.len > 0, "{split:?}");
            at += part.len;
        }
        assert_eq!(at, extent.len, "{split:?}");
        assert!(split.edges().all(|edge| edge.len < align.offset), "{split:?}");
        assert_eq!(split.core.is_some(), has_core, "{split:?}");
        let Some(core) = split.core else { return };
        assert_eq!((core.file, core.file + core.len), (first, last), "{split:?}");
        assert_eq!(core.buf % align.memory, 0, "{split:?}");

        // Its requests are whole blocks, too.
        let control = Control::default();
        let watch = Watch::start(&control, core.len);
        let needed_end = core.file + core.len;
        let chunk = (blocks * align.offset).max(core.len / 64 / align.offset * align.offset);
        let job = Job { needed_end, chunk, ..Job::of(file.as_fd(), core, &watch) };
        let mut plan = Plan::new(&job);
        let mut next = core.file;
        while let Some(request) = plan.next(|_| u64::MAX) {
            assert!(request.file == next && request.len > 0, "{request:?} of {core:?}");
            assert!((request.file | request.len) % align.offset == 0, "{request:?}");
            plan.start(request);
            plan.complete(request, Ok(request.len));
            next += request.len;
        }
        assert_eq!(next, needed_end);
        plan.finish().expect("it is whole");
    });
}

#[cfg_attr(test, test)]
pub(crate) fn buffers_are_laid_out_as_the_file() {
    let near =
        || one_of![4 => numbers(), 1 => any::<u64>(), 1 => i64::MAX as u64 - (1 << 22)..1 << 63];
    holds(&(alignments(), near(), near()), |(align, offset, length)| {
        let unit = page_size().max(align.offset);
        let fits = |base: u64, buffer: u128| u128::from(base) + buffer <= i64::MAX as u128;
        let whole = |length: u128| length.next_multiple_of(u128::from(unit));
        let base = offset / unit * unit;
        let wanted = whole(u128::from(offset - base) + u128::from(length));
        match Layout::new(offset, length, align.offset) {
            Ok(layout) => {
                let Layout { data_offset, buffer, base } = layout;
                assert_eq!(
                    (u128::from(buffer), base + data_offset),
                    (wanted, offset),
                    "{layout:?}"
                );
                assert!(base % unit == 0 && data_offset < unit && fits(base, wanted), "{layout:?}");
                // Direct I/O moves all of it.
                let extent = Extent { file: base, buf: 0, len: buffer };
                assert!(buffer == 0 || Split::new(extent, align) == Some(Split::whole(extent)));
            }
            Err(_) => assert!(!fits(base, wanted), "{length} bytes from {offset} fit"),
        }
        let wanted = whole(length.into());
        match Layout::at_start(offset, length, align.offset) {
            Ok(Layout { data_offset, buffer, base }) => {
                assert_eq!((data_offset, u128::from(buffer), base), (0, wanted, offset));
                assert!(fits(offset, wanted));
            }
            Err(_) => assert!(!fits(offset, wanted), "{length} bytes from {offset} fit"),
        }
    });
}
