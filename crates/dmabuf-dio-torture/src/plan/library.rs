// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls of the library, its keeper and its streams, at the end of some rounds, by numbers of their own: the
//! operations before are those that the seed has always meant.

use crate::disturb::KINDS;
use crate::library::kept::KEPT;
use crate::library::saved::NAMES;
use crate::ops::Op;
use crate::random::Random;
use crate::world::{BUFFERS, DEVICES, DISK, HELD};

use super::{P, Sketch};

/// Mixed into the seed.
const OTHER: u64 = 0x11b4_a4e5;
/// Groups of calls of a round.
const GROUPS: u64 = 4;

/// What is asked for besides the range.
struct How {
    backend: u64,
    block: u64,
    depth: u64,
    direct: u64,
    cancel: u64,
}

impl Sketch {
    /// In half of the rounds, or `only` these.
    pub(super) fn library(&mut self, seed: u64, round: u64, only: bool) {
        self.random = Random::of_round(seed ^ OTHER, round);
        if !self.random.one_in(2) && !only {
            return;
        }
        self.library_start();
        let mut held = [None; HELD];
        for _ in 0..GROUPS * if only { 3 } else { 1 } {
            match self.random.in_range(0..9) {
                0 | 1 => self.loads(&mut held),
                2 => self.loads_into(&held),
                3 => self.gathers(&held),
                4 => self.saves(&held),
                5 => self.saves_in(&held),
                6 => self.keeps(&held),
                7 => self.streams(),
                _ => self.broken_disk(&mut held),
            }
            if self.random.one_in(3) {
                self.views(&held);
            }
        }
        if self.random.one_in(12) {
            let microseconds = self.random.in_range(1..800_000);
            self.ops.push(Op::CaptureKilled { microseconds });
        }
    }

    /// Files, and buffers that no device has.
    fn library_start(&mut self) {
        self.ops.push(Op::Heal {});
        self.ops.extend((0..DEVICES as u64).map(|device| Op::DeviceDrop { device }));
        for file in 0..2 {
            let (length, stamp) = (self.length(), self.stamp());
            self.files[file as usize] = length;
            let kind = self.random.pick(&[0, 0, 0, 1]);
            self.ops.push(Op::File { file, length, kind, stamp });
        }
        let pages = self.random.in_range(8..64);
        let buf = self.heap(pages);
        let stamp = self.stamp();
        self.ops.push(Op::Fill { buf, offset: 0, length: pages * P, stamp });
        // Kernels without heaps have these only.
        let (buf, file, pages) = (self.random.in_range(0..BUFFERS as u64), 2, 24);
        self.whole_file(file, pages);
        self.load_file((buf, file), pages, (0, 0), 0, 1);
    }

    /// What happens during the next call.
    fn meanwhile(&mut self) {
        match self.random.in_range(0..12) {
            0 | 1 => {
                let microseconds = self.random.in_range(1..4000);
                self.ops.push(Op::Signal { microseconds });
            }
            2 => {
                let (microseconds, how) =
                    (self.random.in_range(1..4000), self.random.in_range(0..2));
                self.ops.push(Op::Freeze { microseconds, how });
            }
            3 => {
                let kind = self.random.in_range(0..KINDS);
                self.ops.push(Op::Beside { kind, place: self.random.in_range(0..3) });
            }
            _ => {}
        }
    }

    /// `length`: of the call, to be cancelled before, in the middle, at the end.
    fn how(&mut self, length: u64) -> How {
        let backend = if self.random.one_in(2) { 0 } else { self.random.in_range(1..8) };
        let block = self.random.pick(&[0, 0, P, P, 2 * P, 16 * P]);
        let depth = self.random.pick(&[0, 0, 1, 2, 8]);
        let direct = self.random.pick(&[0, 1, 1, 2]);
        let cancel = match self.random.in_range(0..12) {
            0 => 1,
            1 => self.random.in_range(1..length + 2),
            _ => 0,
        };
        How { backend, block, depth, direct, cancel }
    }

    /// A buffer that is there, of the round or loaded, and its length in bytes.
    fn place(&mut self, held: &[Option<u64>; HELD]) -> Option<(u64, u64)> {
        let of_round = self.buffers.iter().map(|pages| pages.map(|pages| pages * P));
        let all: Vec<Option<u64>> = of_round.chain(held.iter().copied()).collect();
        self.existing(&all)
    }

    /// Into new buffers; then they are used.
    fn loads(&mut self, all: &mut [Option<u64>; HELD]) {
        for _ in 0..3 {
            let (held, file) = (self.random.in_range(0..HELD as u64), self.any_file());
            let size = self.files[file as usize];
            let mut at = self.random.in_range(0..size.max(1));
            match self.random.in_range(0..4) {
                0 => {}
                1 => at = 0,
                _ => at = at / P * P,
            }
            let rest = size.saturating_sub(at).max(1);
            let length = match self.random.in_range(0..8) {
                0 => rest + self.random.in_range(1..2 * P),
                1 | 2 => 0,
                3 => rest,
                _ => self.random.in_range(1..rest + 1),
            };
            let content = if length == 0 { rest } else { length };
            let How { backend, block, depth, direct, cancel } = self.how(content);
            let kind = self.random.in_range(0..5);
            let step = self.random.pick(&[0, 0, P, 4 * P]);
            if cancel == 0 && length <= rest {
                // Roughly: which backends there are is not known here.
                all[held as usize] = Some(at % P + content);
            }
            self.meanwhile();
            self.ops.push(Op::LibLoad {
                held,
                kind,
                file,
                at,
                length,
                backend,
                block,
                depth,
                step,
                direct,
                cancel,
            });
        }
        if self.random.one_in(8) {
            let held = self.random.in_range(0..HELD as u64);
            all[held as usize] = None;
            self.ops.push(Op::LibDrop { held });
        }
    }

    fn loads_into(&mut self, held: &[Option<u64>; HELD]) {
        for _ in 0..3 {
            let Some((place, length)) = self.place(held) else { return };
            let file = self.any_file();
            let (at, offset, length) = self.span(file, length);
            let How { backend, block, depth, direct, cancel } = self.how(length);
            self.meanwhile();
            self.ops.push(Op::LibLoadInto {
                place,
                file,
                at,
                offset,
                length,
                backend,
                block,
                depth,
                direct,
                cancel,
            });
        }
    }

    fn views(&mut self, held: &[Option<u64>; HELD]) {
        let Some((place, size)) = self.place(held) else { return };
        let offset = self.random.in_range(0..size);
        let length = self.random.in_range(1..size - offset + 1);
        let length = if self.random.one_in(10) { size + 1 } else { length };
        let stamp = if self.random.one_in(2) { self.stamp() } else { 0 };
        self.ops.push(Op::LibView { place, offset, length, stamp });
    }

    fn gathers(&mut self, held: &[Option<u64>; HELD]) {
        for _ in 0..3 {
            let Some((place, size)) = self.place(held) else { return };
            let file = self.any_file();
            let (seed, count) = (self.random.next() >> 32, self.random.in_range(1..60));
            let spare = self.random.in_range(0..1 + size / P / 2);
            let overlap = match self.random.in_range(0..10) {
                kind @ 1..=2 => kind,
                _ => 0,
            };
            let backend = if self.random.one_in(2) { 0 } else { self.random.in_range(1..8) };
            let depth = self.random.pick(&[0, 0, 1, 3, 16]);
            let direct = self.random.pick(&[0, 1, 1, 2]);
            // Buffered gathers need a thread for each request.
            self.meanwhile();
            self.ops.push(Op::LibGather {
                place,
                file,
                seed,
                count,
                spare,
                overlap,
                backend,
                depth,
                direct,
            });
        }
    }

    fn name(&mut self) -> u64 {
        self.random.in_range(0..NAMES)
    }

    fn saves(&mut self, held: &[Option<u64>; HELD]) {
        for _ in 0..3 {
            let name = self.name();
            let Some((place, size)) = self.place(held) else { return };
            let offset = if self.random.one_in(2) { 0 } else { self.random.in_range(0..size) };
            let rest = size - offset;
            let length = match self.random.in_range(0..6) {
                0 => rest + 1,
                1 | 2 => rest,
                _ => self.random.in_range(0..rest + 1),
            };
            let How { backend, block, depth, direct, cancel } = self.how(length);
            match self.random.in_range(0..6) {
                0 => {
                    let left = self.random.in_range(0..size / P + 4);
                    self.ops.push(Op::LibSaveSmall { place, offset, length, left, direct });
                }
                1 => {
                    let stamp = self.stamp();
                    let stop = match self.random.in_range(0..3) {
                        0 => self.random.in_range(0..length + 1),
                        _ => length + 1,
                    };
                    self.meanwhile();
                    self.ops.push(Op::LibSaveFrom {
                        name,
                        length,
                        stamp,
                        stop,
                        block,
                        depth,
                        direct,
                        cancel,
                    });
                }
                _ => {
                    self.meanwhile();
                    self.ops.push(Op::LibSave {
                        name,
                        place,
                        offset,
                        length,
                        backend,
                        block,
                        depth,
                        direct,
                        cancel,
                    });
                }
            }
        }
    }

    fn saves_in(&mut self, held: &[Option<u64>; HELD]) {
        for _ in 0..3 {
            let Some((place, size)) = self.place(held) else { return };
            let file = self.any_file();
            let (at, offset, length) = self.span(file, size);
            let How { backend, block, depth, direct, cancel } = self.how(length);
            if file != DISK {
                let size = &mut self.files[file as usize];
                *size = (*size).max(at + length);
            }
            self.meanwhile();
            self.ops.push(Op::LibSaveIn {
                place,
                file,
                at,
                offset,
                length,
                backend,
                block,
                depth,
                direct,
                cancel,
            });
        }
    }

    /// A saved file is kept, again, replaced, removed, held.
    fn keeps(&mut self, held: &[Option<u64>; HELD]) {
        self.saves(held);
        for _ in 0..3 {
            let (kept, name) = (self.random.in_range(0..KEPT as u64), self.name());
            let direct = self.random.in_range(0..2);
            let cancel = if self.random.one_in(8) { self.random.in_range(1..3 * P) } else { 0 };
            match self.random.in_range(0..5) {
                0 => self.ops.push(Op::KeepDrop { kept }),
                1 => {
                    let devices = self.random.in_range(0..2);
                    self.ops.push(Op::KeepHold { name, devices });
                }
                _ => {
                    self.meanwhile();
                    self.ops.push(Op::Keep { kept, name, direct, cancel });
                }
            }
        }
    }

    /// Captures and replays of small blocks and larger ones.
    fn streams(&mut self) {
        for _ in 0..2 {
            let name = self.name();
            let frames = self.random.in_range(1..40_000);
            let block = self.random.pick(&[P, 2 * P, 16 * P, 5 * 8 * 13]);
            let blocks = self.random.in_range(2..9);
            let rate = self.random.pick(&[0, 0, 1_000_000, 20_000_000]);
            let copied = u64::from(self.random.one_in(4));
            let cancel =
                if self.random.one_in(5) { self.random.in_range(1..frames * 8) } else { 0 };
            let loss = if self.random.one_in(3) { self.random.in_range(1..5000) } else { 0 };
            self.meanwhile();
            self.ops.push(if self.random.one_in(2) {
                Op::Capture { name, frames, block, blocks, rate, loss, copied, cancel }
            } else {
                Op::Replay { name, frames, block, blocks, rate, copied, cancel }
            });
        }
    }

    /// A part of the disk fails below the library.
    fn broken_disk(&mut self, held: &mut [Option<u64>; HELD]) {
        let at = self.random.in_range(0..crate::disk::SIZE as u64 / 512) * 512;
        let length = 512 * self.random.in_range(1..80);
        self.ops.push(Op::Break { at, length });
        let sizes = std::mem::take(&mut self.files);
        // All of it is of the disk.
        self.files = [sizes[DISK as usize]; 4];
        match self.random.in_range(0..3) {
            0 => self.loads_into(held),
            1 => self.gathers(held),
            _ => self.saves_in(held),
        }
        self.files = sizes;
        for op in self.ops.iter_mut().rev().take(6) {
            if let Op::LibLoadInto { file, .. }
            | Op::LibGather { file, .. }
            | Op::LibSaveIn { file, .. } = op
            {
                *file = DISK;
            }
        }
        self.ops.push(Op::Heal {});
    }
}
