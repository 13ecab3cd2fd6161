// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who else uses buffers: slots, devices, other processes.

use crate::mapper::SECTOR;
use crate::ops::Op;
use crate::world::{DEVICES, DISK, SLOTS};

use super::{P, Read, Sketch, Write};

impl Sketch {
    pub(super) fn slot(&mut self) {
        let slots = self.slots;
        let used = self.existing(&slots);
        match (self.random.in_range(0..10), used) {
            (0, Some((slot, _))) => {
                self.slots[slot as usize] = None;
                self.ops.push(Op::SlotClear { slot });
            }
            (kind @ 1..=7, Some((slot, length))) => self.slot_transfer(slot, length, kind < 4),
            _ => self.slot_register(),
        }
    }

    fn slot_register(&mut self) {
        let slot = self.random.in_range(0..SLOTS as u64);
        let buffers = self.buffers;
        let Some((buf, pages)) = self.existing(&buffers) else { return };
        let flags = self.random.pick(&[1, 2, 3, 3, 3]);
        let busy = self.random.one_in(6);
        if self.slots[slot as usize].is_some() && !busy {
            self.ops.push(Op::SlotClear { slot });
        }
        if self.random.one_in(4) {
            let Some((buf2, more)) = self.existing(&buffers) else { return };
            self.slots[slot as usize] = Some((pages + more) * P);
            return self.ops.push(Op::Join { slot, buf, buf2, flags });
        }
        let (page, count) = self.part(pages);
        let less = if self.random.one_in(2) { self.random.in_range(0..P) } else { 0 };
        let length = count * P - less;
        self.slots[slot as usize] = Some(length);
        self.ops.push(Op::Slot { slot, buf, page, length, flags });
    }

    pub(super) fn slot_transfer(&mut self, slot: u64, length: u64, write: bool) {
        let file = self.any_file();
        let direct = self.random.in_range(0..2);
        let (mut at, mut skip, mut length) = self.span(file, length);
        if direct != 0 {
            (at, skip) = (at / P * P, skip / P * P);
            length = if length < 512 { 512 } else { length / 512 * 512 };
        }
        if !write {
            return self.ops.push(Op::SlotRead { slot, file, at, skip, length, direct });
        }
        if file != DISK {
            let size = &mut self.files[file as usize];
            *size = (*size).max(at + length);
        }
        self.ops.push(Op::SlotWrite { slot, file, at, skip, length, direct });
    }

    pub(super) fn device(&mut self) {
        let device = self.random.in_range(0..DEVICES as u64);
        let buffers = self.buffers;
        let Some((buf, pages)) = self.existing(&buffers) else { return };
        match self.random.in_range(0..8) {
            0..=2 => {
                self.ops.push(Op::Import { device, buf });
                self.draw(Read);
            }
            3 | 4 => self.ops.push(Op::DeviceRead { device }),
            5 | 6 => {
                let at = self.random.in_range(0..pages * P);
                let length = self.random.in_range(1..4 * P);
                let stamp = self.stamp();
                self.ops.push(Op::DeviceWrite { device, at, length, stamp });
                let next = self.random.pick(&[Read, Write]);
                self.draw(next);
            }
            _ => self.ops.push(Op::DeviceDrop { device }),
        }
    }

    /// A call of another process.
    pub(super) fn process(&mut self) {
        let buffers = self.buffers;
        let Some((buf, pages)) = self.existing(&buffers) else { return };
        let file = self.any_file();
        let size = self.files[file as usize];
        if self.random.one_in(3) {
            let at = self.random.in_range(0..size.max(1)) / P * P;
            let length = self.random.in_range(1..size.saturating_sub(at).max(2));
            let direct = self.random.in_range(0..2);
            self.buffers[buf as usize] = Some(length.div_ceil(P));
            self.ops.push(Op::ChildLoad { buf, file, at, length, direct });
            return self.ops.push(Op::Attach { buf });
        }
        let (at, offset, length) = self.span(file, pages * P);
        let length = length.min(size.saturating_sub(at)).max(1);
        if self.random.one_in(3) {
            let (direct, write) = (self.random.in_range(0..2), self.random.in_range(0..2));
            let microseconds = self.random.in_range(1..20_000);
            let (at, offset) = (at / P * P, offset / P * P);
            let length = if direct != 0 { length.next_multiple_of(SECTOR) } else { length };
            return self.ops.push(Op::ChildSlot {
                buf,
                file,
                at,
                offset,
                length,
                direct,
                write,
                microseconds,
            });
        }
        let (chunk, depth) = self.shape();
        let (direct, exec) = (self.random.in_range(0..2), u64::from(self.random.one_in(3)));
        let microseconds = self.random.in_range(1..20_000);
        self.ops.push(if self.random.one_in(2) {
            Op::ChildRead {
                buf,
                file,
                at,
                offset,
                length,
                chunk,
                depth,
                direct,
                microseconds,
                exec,
            }
        } else {
            Op::ChildWrite {
                buf,
                file,
                at,
                offset,
                length,
                chunk,
                depth,
                direct,
                microseconds,
                exec,
            }
        });
    }
}
