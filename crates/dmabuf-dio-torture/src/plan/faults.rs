// SPDX-License-Identifier: MIT OR Apache-2.0
//! What happens to the whole machine, or to files by others, at the end of some rounds: the
//! operations before are those that the seed has always meant.

use crate::disk;
use crate::disturb::HOTPLUG;
use crate::mapper::SECTOR;
use crate::ops::Op;
use crate::plug;
use crate::random::Random;
use crate::world::{BUFFERS, DEVICES, DISK, SLOTS};

use super::{Load, P, Read, Sketch, Slot, Write};

/// How many there are.
const FAULTS: u64 = 10;
/// Mixed into the seed.
const OTHER: u64 = 0x5eed_0fa1;

impl Sketch {
    /// In half of the rounds, two faults, or `only` these.
    pub(super) fn faults(&mut self, seed: u64, round: u64, only: bool) {
        self.random = Random::of_round(seed ^ OTHER, round);
        if self.random.one_in(2) || only {
            self.fault();
            self.fault();
        }
    }

    fn fault(&mut self) {
        match self.random.in_range(0..FAULTS) {
            0 => self.still(),
            1 => self.hotplug(),
            2 => self.limited(),
            3 => self.frozen_files(),
            4 => self.clones(),
            5 => self.changing_file(),
            6 => self.small(),
            7 => self.unplugged(),
            8 => self.slow(),
            _ => self.reload(),
        }
    }

    /// A buffer, and files that can be moved there: some were closed by now.
    fn anew(&mut self) -> (u64, u64) {
        let pages = self.random.in_range(8..80);
        self.ops.push(Op::Heal {});
        self.whole_file(0, pages);
        self.whole_file(1, pages);
        if self.random.one_in(2) {
            return (self.heap(pages), pages);
        }
        let buf = self.random.in_range(0..BUFFERS as u64);
        self.load_file((buf, 0), pages, (0, 0), 0, 1);
        (buf, pages)
    }

    /// A LOAD of a file's first pages, and its buffer is attached.
    pub(super) fn load_file(
        &mut self,
        (buf, file): (u64, u64),
        pages: u64,
        shape: (u64, u64),
        gather: u64,
        direct: u64,
    ) {
        let (at, length, (chunk, depth)) = (0, pages * P, shape);
        let (writable, other) = (1, 0);
        self.buffers[buf as usize] = Some(pages);
        self.ops.push(Op::Load {
            buf,
            file,
            at,
            length,
            chunk,
            depth,
            gather,
            direct,
            writable,
            other,
        });
        self.ops.push(Op::Attach { buf });
    }

    /// The process stands still in the middle of calls of many small requests.
    fn still(&mut self) {
        let (buf, pages) = self.anew();
        for _ in 0..4 {
            let (microseconds, how) = (self.random.in_range(1..4000), self.random.in_range(0..3));
            let direct = self.random.in_range(0..2);
            self.ops.push(Op::FileUncache { file: 0 });
            self.ops.push(Op::Freeze { microseconds, how });
            let (at, chunk, depth, length) = (0, P, 1, pages * P);
            match self.random.in_range(0..4) {
                0 => {
                    let buf = self.random.in_range(0..BUFFERS as u64);
                    self.load_file((buf, 0), pages, (chunk, depth), 1, direct);
                }
                1 => {
                    let next = self.random.pick(&[Load, Read, Write, Slot]);
                    self.draw(next);
                }
                2 => {
                    let (offset, file) = (0, self.random.pick(&[0, DISK]));
                    self.ops.push(Op::Read { buf, file, at, offset, length, chunk, depth, direct });
                }
                _ => {
                    let (offset, file) = (0, 1);
                    self.ops.push(Op::Write {
                        buf,
                        file,
                        at,
                        offset,
                        length,
                        chunk,
                        depth,
                        direct,
                    });
                }
            }
        }
    }

    /// A processor goes offline and comes back while transfers run.
    fn hotplug(&mut self) {
        let (buf, pages) = self.anew();
        let milliseconds = self.random.in_range(1..8);
        self.ops.push(Op::Slow { at: 0, length: disk::SIZE as u64, milliseconds });
        for turn in 0..4 {
            let (direct, file) =
                if turn == 0 { (self.random.in_range(0..2), 0) } else { (1, DISK) };
            self.ops.push(Op::FileUncache { file });
            self.ops.push(Op::Beside { kind: HOTPLUG, place: 0 });
            if turn < 3 {
                // Takes long, so that it is in the middle when a processor goes.
                let length = (pages * P).min(disk::SIZE as u64 / P * P);
                let (at, offset, chunk, depth) = (0, 0, P, 1);
                self.ops.push(Op::Read { buf, file, at, offset, length, chunk, depth, direct });
            } else {
                let next = self.random.pick(&[Load, Read, Write, Slot]);
                self.draw(next);
            }
        }
    }

    /// WRITE to a file system that is frozen waits; READs go on.
    fn frozen_files(&mut self) {
        let (buf, pages) = self.anew();
        self.ops.extend((0..DEVICES as u64).map(|device| Op::DeviceDrop { device }));
        let cut = self.random.in_range(1..pages - 1);
        let other = self.random.in_range(cut + 1..pages);
        self.ops.push(Op::StallFiles {});
        self.ops.push(Op::Together { count: 3 });
        for (file, from, to) in [(1, 0, cut), (0, cut, other), (DISK, other, pages)] {
            let (chunk, depth) = self.shape();
            let (at, offset, length) = (0, from * P, (to - from) * P);
            let direct = self.random.in_range(0..2);
            self.ops.push(if file == 1 {
                Op::Write { buf, file, at, offset, length, chunk, depth, direct }
            } else {
                Op::Read { buf, file, at, offset, length, chunk, depth, direct }
            });
        }
    }

    /// Files that share blocks; then either is written.
    fn clones(&mut self) {
        let (buf, pages) = self.anew();
        for _ in 0..3 {
            let (file, from) = self.random.pick(&[(0, 1), (1, 0), (1, 0)]);
            let (at, source) =
                (self.random.in_range(0..pages) * P, self.random.in_range(0..pages) * P);
            let length = match self.random.in_range(0..3) {
                0 => pages * P,
                _ => self.random.in_range(1..pages * P),
            };
            self.files[file as usize] = self.files[file as usize].max(at + length);
            self.ops.push(Op::FileClone { file, from, at, source, length });
            for _ in 0..3 {
                let (at, offset, length) = self.span(file, pages * P);
                let (direct, (chunk, depth)) = (self.random.in_range(0..2), self.shape());
                let file = self.random.in_range(0..2);
                self.ops.push(if self.random.one_in(2) {
                    Op::Read { buf, file, at, offset, length, chunk, depth, direct }
                } else {
                    self.files[file as usize] = self.files[file as usize].max(at + length);
                    Op::Write { buf, file, at, offset, length, chunk, depth, direct }
                });
            }
        }
    }

    /// Another thread cuts a file and extends it.
    fn changing_file(&mut self) {
        let (buf, pages) = self.anew();
        for _ in 0..3 {
            let file = self.random.in_range(0..2);
            let (mut at, mut offset, mut length) = self.span(file, pages * P);
            let (kind, (mut chunk, mut depth)) = (self.random.in_range(0..2), self.shape());
            if !self.random.one_in(3) {
                // Takes long.
                (at, offset, length, chunk, depth) = (0, 0, pages * P, P, 1);
            }
            length = length.min((pages * P).saturating_sub(at)).max(1);
            let direct = self.random.in_range(0..2);
            let to = self.random.in_range(0..pages * P);
            self.ops.push(match self.random.in_range(0..5) {
                0 | 1 => Op::ChangedRead {
                    buf,
                    file,
                    at,
                    offset,
                    length,
                    chunk,
                    depth,
                    direct,
                    to,
                    kind,
                },
                2 | 3 => {
                    Op::ChangedWrite { buf, file, at, offset, length, chunk, depth, direct, to }
                }
                _ => {
                    let (buf, at) = (self.random.in_range(0..BUFFERS as u64), at / P * P);
                    self.buffers[buf as usize] = Some(length.div_ceil(P));
                    Op::ChangedLoad { buf, file, at, length, direct, to, kind }
                }
            });
            let next = self.random.pick(&[Read, Write]);
            self.draw(next);
        }
    }

    /// WRITE to a tmpfs that has room for a part, or for all.
    fn small(&mut self) {
        let (buf, pages) = self.anew();
        let stamp = self.stamp();
        self.ops.push(Op::Fill { buf, offset: 0, length: pages * P, stamp });
        for _ in 0..2 {
            let (length, direct) =
                (self.random.in_range(1..pages * P + 1), self.random.in_range(0..2));
            let left = self.random.in_range(1..pages + 20);
            self.ops.push(Op::WriteSmall { buf, length, direct, left });
        }
    }

    /// The module cannot be removed while a part of it is used, and can when it is not.
    fn reload(&mut self) {
        let count = self.random.in_range(1..4);
        self.ops.push(Op::Reload { count });
        self.anew();
        self.ops.extend((0..DEVICES as u64).map(|device| Op::DeviceDrop { device }));
        self.ops.extend((0..SLOTS as u64).map(|slot| Op::SlotClear { slot }));
        self.ops.push(Op::LoaderClose {});
        for buf in 0..BUFFERS as u64 {
            self.ops.push(Op::Close { buf });
            if self.random.one_in(BUFFERS as u64) {
                // This one's context is left.
                self.ops.push(Op::Reload { count });
            }
            self.ops.push(Op::Detach { buf });
        }
        self.buffers = [None; BUFFERS];
        self.slots = [None; SLOTS];
        self.ops.push(Op::Reload { count });
        let (buf, pages) = self.anew();
        self.whole(true, buf, 0, pages);
    }

    /// LOADs with more and with less memory than they take.
    fn limited(&mut self) {
        for _ in 0..2 {
            let buf = self.random.in_range(0..BUFFERS as u64);
            let length = self.random.in_range(P..8 << 20);
            let limit = self.random.in_range(1 << 20..16 << 20) / P * P;
            let direct = self.random.in_range(0..2);
            self.buffers[buf as usize] = Some(length.div_ceil(P));
            self.ops.push(Op::LimitedLoad { buf, length, direct, limit });
            self.ops.push(Op::Attach { buf });
            let length = self.random.in_range(P..8 << 20);
            let limit = self.random.in_range(4 << 20..12 << 20) / P * P;
            self.ops.push(Op::LimitedRead { length, limit });
        }
    }

    /// A disk is unplugged, or gives no answer, during READ or WRITE.
    fn unplugged(&mut self) {
        let (buf, pages) = self.anew();
        for _ in 0..3 {
            let disk = self.random.in_range(0..plug::KINDS);
            let microseconds = self.random.in_range(1..8000);
            // Small requests are long under way; each that gets no answer takes a second.
            let chunk = if disk < 2 { P } else { 16 * P };
            let depth = self.random.pick(&[0, 1, 1, 2, 8]);
            let sectors = pages * P / SECTOR;
            let offset = self.random.in_range(0..sectors) * SECTOR;
            let length = pages * P - offset;
            let at = self.random.in_range(0..(plug::SIZE as u64 - length) / SECTOR) * SECTOR;
            self.ops.push(if self.random.one_in(2) {
                Op::UnpluggedRead { buf, at, offset, length, chunk, depth, disk, microseconds }
            } else {
                Op::UnpluggedWrite { buf, at, offset, length, chunk, depth, disk, microseconds }
            });
            let next = self.random.pick(&[Read, Write]);
            self.draw(next);
        }
    }

    /// A part of the disk answers late.
    fn slow(&mut self) {
        let (buf, pages) = self.anew();
        let size = disk::SIZE as u64;
        for _ in 0..4 {
            let at = self.random.in_range(0..size / SECTOR) * SECTOR;
            let length = SECTOR * self.random.in_range(1..80);
            let milliseconds = self.random.in_range(1..30);
            self.ops.push(Op::Slow { at, length, milliseconds });
            if self.random.one_in(3) {
                let microseconds = self.random.in_range(1..30_000);
                self.ops.push(Op::Signal { microseconds });
            }
            let (at, offset, length) = self.span(DISK, pages * P);
            let (direct, (chunk, depth)) = (self.random.in_range(0..2), self.shape());
            let file = DISK;
            self.ops.push(if self.random.one_in(2) {
                Op::Read { buf, file, at, offset, length, chunk, depth, direct }
            } else {
                let length = length.min(size.saturating_sub(at)).max(1);
                Op::Write { buf, file, at, offset, length, chunk, depth, direct }
            });
        }
        self.ops.push(Op::Heal {});
    }
}
