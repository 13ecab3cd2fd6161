// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sizes of blocks, and how many of them a ring has.

use dmabuf_dio::probe;
use dmabuf_dio_stream::available;

use crate::args::streams::RingArgs;

/// The default block size: upper bound, blocks per second, and the size for a device without a rate. The
/// lower bound is a page.
const BLOCK: u64 = 16 << 20;
const PART: f64 = 8.0;
const WITHOUT_RATE: u64 = 64 << 10;
/// The ring at the start: seconds of samples, or blocks for a device without a rate.
const SECONDS: f64 = 2.0;
const WITHOUT_RATE_BLOCKS: u64 = 8;
/// Free memory to count on if the kernel does not say.
const UNKNOWN_MEMORY: u64 = 256 << 20;
/// Most blocks of a ring. Each needs two descriptors, and one more for a moment.
const MOST: u64 = 4096;
const FILES_PER_BLOCK: u64 = 3;
const OTHER_FILES: u64 = 64;

/// The number of blocks at the start, and the most later. Available memory and the limit on open
/// files bound both.
pub(super) fn numbers(
    args: &RingArgs,
    block: u64,
    bytes_per_second: Option<f64>,
) -> (usize, usize) {
    let files = probe::most_open_files().unwrap_or(u64::MAX);
    limited(args, block, bytes_per_second, available(), files)
}

fn limited(
    args: &RingArgs,
    block: u64,
    bytes_per_second: Option<f64>,
    available: Option<u64>,
    files: u64,
) -> (usize, usize) {
    let block = block.max(1);
    let seconds = args.ring.unwrap_or(SECONDS);
    let wanted = bytes_per_second
        .map_or(WITHOUT_RATE_BLOCKS, |bytes| (seconds * bytes / block as f64).ceil() as u64);
    let free = available.unwrap_or(UNKNOWN_MEMORY);
    let by_files = (files.saturating_sub(OTHER_FILES) / FILES_PER_BLOCK).min(MOST);
    let most = args.max_ring.unwrap_or(free / 2) / block;
    let first = wanted.min(free / 4 / block).min(most).min(by_files).max(2);
    (first as usize, most.min(by_files).max(first) as usize)
}

/// The smallest size in bytes that is a multiple of both the frame and the page.
pub(super) fn whole(frame: u64) -> u64 {
    let (mut a, mut b) = (frame.max(1), page_size());
    while b > 0 {
        (a, b) = (b, a % b);
    }
    frame.max(1) / a * page_size()
}

pub(super) fn page_size() -> u64 {
    rustix::param::page_size() as u64
}

/// The default block size: a multiple of `align`, which is a multiple of frames.
pub(super) fn suitable(frame: u64, align: u64, rate: Option<f64>) -> u64 {
    let (least, most, align) = (page_size(), BLOCK, align.max(1));
    let wanted = rate.map_or(WITHOUT_RATE, |rate| (rate * frame as f64 / PART) as u64);
    if wanted < least {
        // Unaligned writes do not matter at such a low rate.
        return (wanted / align).max(1) * align;
    }
    (wanted.min(most) / whole(align)).max(1) * whole(align)
}

/// At most `size` bytes of frames of `frame` bytes, multiples of `align`, that are whole pages at both
/// ends, if `size` is enough for that.
pub(super) fn both_whole(size: u64, align: u64, frame: u64, other: u64) -> u64 {
    let (one, two) = (whole(align) / frame, whole(other) / other);
    // A common multiple suffices.
    let frames = if one % two == 0 {
        one
    } else if two % one == 0 {
        two
    } else {
        one * two
    };
    let step = frames * frame;
    if size < step { size } else { size / step * step }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_are_sized_by_time_and_memory() {
        use clap::Parser as _;
        const MIB: u64 = 1 << 20;

        #[derive(clap::Parser)]
        struct Only {
            #[command(flatten)]
            ring: RingArgs,
        }
        let gib = 1 << 30;
        let of = |options: &[&str], block: u64, rate: f64, free: u64, files: u64| {
            let words = [&["x"], options].concat();
            let args = Only::try_parse_from(words).expect("options").ring;
            limited(&args, block, (rate > 0.0).then_some(rate), Some(free), files)
        };
        assert_eq!(of(&[], MIB, 8e6, 4 * gib, 1 << 20), (16, 2048));
        // A quarter of the memory at first, and a half at last.
        assert_eq!(of(&[], MIB, 1e9, gib, 1 << 20), (256, 512));
        assert_eq!(of(&["--max-ring", "40M"], MIB, 1e9, gib, 1 << 20), (40, 40));
        assert_eq!(of(&["--ring", "0.5", "--max-ring", "40M"], MIB, 8e6, gib, 1 << 20), (4, 40));
        // The limit on open files, and at least two.
        assert_eq!(of(&[], MIB, 1e9, 4 * gib, 1024), (320, 320));
        assert_eq!(of(&[], MIB, 1.0, 0, 3), (2, 2));
        assert_eq!(of(&[], 64 << 10, 0.0, gib, 1 << 20), (8, 4096));
    }

    #[test]
    fn blocks_are_whole_pages_at_both_ends() {
        for (size, frame, other) in
            [(1 << 20, 4, 8), (999_424, 8, 4), (999_424, 8, 2), (1 << 20, 6, 4)]
        {
            let both = both_whole(size, frame, frame, other);
            assert!(both > 0 && both <= size && both % frame == 0, "{both}");
            let page = page_size();
            assert_eq!((both % page, both / frame * other % page), (0, 0), "{frame} and {other}");
        }
        assert_eq!(both_whole(4096, 8, 8, 4), 4096, "too little for both");
        // The frame has 12 bytes, and the DMA moves multiples of 5 bytes.
        let both = both_whole(1 << 20, 60, 12, 8);
        assert!(both > 0 && both % 60 == 0 && both % page_size() == 0, "{both}");
    }

    #[test]
    fn blocks_are_whole_frames_and_pages() {
        assert_eq!(whole(10_000) % page_size(), 0);
        if page_size() != 4096 {
            return println!("skipped: the sizes below are for pages of 4 KiB");
        }
        assert_eq!((whole(8), whole(24), whole(1), whole(10_000)), (4096, 12_288, 4096, 2_560_000));
        assert_eq!(suitable(8, 8, None), 64 << 10);
        assert_eq!(suitable(8, 8, Some(1e9)), 16 << 20);
        assert_eq!(suitable(8, 8, Some(1e6)), 999_424);
        assert_eq!((suitable(8, 8, Some(1.0)), suitable(8, 8, Some(100.0))), (8, 96));
        assert_eq!(suitable(24, 24, Some(1000.0)), 3000);
        assert_eq!(suitable(24, 24, Some(2000.0)), 12_288);
    }

    #[test]
    fn default_blocks_suit_the_dma() {
        for (frame, align) in
            [(2, 8), (4, 8), (6, 24), (8, 8), (2, 64), (4, 12), (6, 30), (1, 4096)]
        {
            for rate in [1e-3, 1.0, 10.0, 500.0, 1000.0, 1001.0, 12_345.6, 1e6, 1e9] {
                let size = suitable(frame, align, Some(rate));
                assert!(size > 0 && size % align == 0, "{frame}, {align}, {rate}: {size}");
                let both = both_whole(size, align, frame, 4);
                assert!(both > 0 && both % align == 0, "{frame}, {align}, {rate}: {both}");
            }
            assert_eq!(suitable(frame, align, None) % align, 0);
        }
    }
}
