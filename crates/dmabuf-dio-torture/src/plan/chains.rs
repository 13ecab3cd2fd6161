// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sequences in which one operation is of interest only after others, with random sizes and gaps.

use crate::ops::Op;
use crate::world::{BUFFERS, DEVICES, DISK, SLOTS, STORES};

use super::{P, Sketch};

/// How many there are.
const CHAINS: u64 = 14;

impl Sketch {
    pub(super) fn chain(&mut self) {
        match self.random.in_range(0..CHAINS) {
            0 | 1 => self.never_filled(),
            2 | 3 => self.stored_and_left(),
            4 => self.changed_below(),
            5 => self.slot_many(),
            6 => self.device_between(),
            7 => self.interrupted_load(),
            8 => self.stalled_disk(),
            9 | 10 => self.fenced(),
            11 => self.scattered(),
            12 => self.full_disk(),
            _ => self.too_much(),
        }
    }

    /// A memfd in a place of its own.
    fn small_store(&mut self, pages: u64) -> u64 {
        let store = self.random.in_range(0..STORES as u64);
        self.stores[store as usize] = Some(pages);
        self.ops.push(Op::Store { store, pages });
        store
    }

    fn whole_udmabuf(&mut self, store: u64, pages: u64) -> u64 {
        let buf = self.random.in_range(0..BUFFERS as u64);
        self.buffers[buf as usize] = Some(pages);
        self.ops.push(Op::Udmabuf { buf, store, page: 0, pages });
        buf
    }

    pub(super) fn heap(&mut self, pages: u64) -> u64 {
        let buf = self.random.in_range(0..BUFFERS as u64);
        self.buffers[buf as usize] = Some(pages);
        self.ops.push(Op::Heap { buf, pages });
        self.ops.push(Op::Attach { buf });
        buf
    }

    /// A file that was written, of whole pages.
    pub(super) fn whole_file(&mut self, file: u64, pages: u64) {
        let stamp = self.stamp();
        self.files[file as usize] = pages * P;
        self.ops.push(Op::File { file, length: pages * P, kind: 0, stamp });
    }

    /// READ or WRITE of a whole buffer and the start of a file.
    pub(super) fn whole(&mut self, read: bool, buf: u64, file: u64, pages: u64) {
        let (at, offset, length) = (0, 0, pages * P);
        let (chunk, depth) = self.shape();
        let direct = self.random.in_range(0..2);
        if !read {
            let size = &mut self.files[file as usize];
            *size = (*size).max(length);
        }
        self.ops.push(if read {
            Op::Read { buf, file, at, offset, length, chunk, depth, direct }
        } else {
            Op::Write { buf, file, at, offset, length, chunk, depth, direct }
        });
    }

    /// Memory of a memfd that nobody has filled, also punched out, is not lent.
    fn never_filled(&mut self) {
        let size = self.random.in_range(4..24);
        let store = self.small_store(size);
        let (page, pages) = self.part(size);
        self.ops.push(Op::StoreAllocate { store, page, pages });
        if self.random.one_in(4) {
            let ((page, pages), stamp) = (self.part(size), self.stamp());
            self.ops.push(Op::StoreWrite { store, page, pages, stamp });
        }
        let buf = self.whole_udmabuf(store, size);
        if self.random.one_in(2) {
            self.ops.push(Op::StorePunch { store, page, pages });
        }
        self.ops.push(Op::Attach { buf });
        self.whole(false, buf, 0, size);
        if self.random.one_in(2) {
            self.ops.push(Op::StoreTouch { store, page: 0, pages: size });
            self.ops.push(Op::Attach { buf });
            self.whole(true, buf, 0, size);
        }
    }

    /// What was stored into clean pages stays when only the memfd is left.
    fn stored_and_left(&mut self) {
        let size = self.random.in_range(2..24);
        let store = self.small_store(size);
        if self.random.one_in(2) {
            let ((page, pages), stamp) = (self.part(size), self.stamp());
            self.ops.push(match self.random.in_range(0..2) {
                0 => Op::StoreTouch { store, page, pages },
                _ => Op::StoreWrite { store, page, pages, stamp },
            });
        }
        let buf = self.whole_udmabuf(store, size);
        self.ops.push(Op::Attach { buf });
        self.whole_file(0, size);
        self.whole(true, buf, 0, size);
        self.ops.extend([Op::Detach { buf }, Op::Close { buf }, Op::StoreOut { store }]);
        self.buffers[buf as usize] = None;
        if self.random.one_in(2) {
            let buf = self.whole_udmabuf(store, size);
            self.ops.push(Op::Attach { buf });
            self.whole(false, buf, 1, size);
        }
    }

    /// The memfd gets other pages, or its pages another form, while a buffer has them.
    fn changed_below(&mut self) {
        let size = if self.random.one_in(3) { 512 } else { self.random.in_range(8..48) };
        let (store, first) = (self.small_store(size), self.stamp());
        self.ops.push(Op::StoreWrite { store, page: 0, pages: size, stamp: first });
        if size == 512 {
            self.ops.push(Op::StoreCollapse { store });
        }
        let pages = size.min(64);
        let buf = self.whole_udmabuf(store, pages);
        self.ops.push(Op::Attach { buf });
        let ((page, count), stamp) = (self.part(pages), self.stamp());
        self.ops.push(match self.random.in_range(0..3) {
            0 => Op::StoreOut { store },
            _ => Op::StorePunch { store, page, pages: count },
        });
        self.ops.push(Op::StoreWrite { store, page, pages: count, stamp });
        self.whole_file(0, pages);
        self.whole(true, buf, 0, pages);
        self.whole(false, buf, 1, pages);
        self.ops.extend([Op::Detach { buf }, Op::Close { buf }, Op::StoreOut { store }]);
        self.buffers[buf as usize] = None;
    }

    /// Slots over parts of a buffer in any order, used after the buffer was closed, too.
    fn slot_many(&mut self) {
        let pages = self.random.in_range(8..64);
        let buf = self.heap(pages);
        let stamp = self.stamp();
        self.ops.push(Op::Fill { buf, offset: 0, length: pages * P, stamp });
        self.whole_file(0, pages);
        self.ops.push(Op::SlotSize { slot: self.random.in_range(0..SLOTS as u64), buf });
        for slot in 0..SLOTS as u64 {
            let (page, count) = self.part(pages);
            let length = count * P;
            self.slots[slot as usize] = Some(length);
            self.ops.push(Op::SlotClear { slot });
            self.ops.push(Op::Slot { slot, buf, page, length, flags: 3 });
            if self.random.one_in(2) {
                // Its index is in use.
                self.ops.push(Op::Slot { slot, buf, page, length, flags: 3 });
            }
        }
        for turn in 0..6 {
            if turn == 3 && self.random.one_in(2) {
                self.ops.extend([Op::Detach { buf }, Op::Close { buf }]);
                self.buffers[buf as usize] = None;
                // The memory would be used again.
                self.heap(pages);
            }
            let slot = self.random.in_range(0..SLOTS as u64);
            let length = self.slots[slot as usize].unwrap_or(P);
            let write = self.random.one_in(2);
            self.slot_transfer(slot, length, write);
        }
    }

    /// A device that works on a copy stores between transfers that run at the same time.
    fn device_between(&mut self) {
        let pages = self.random.in_range(4..32);
        let (buf, device) = (self.heap(pages), self.random.in_range(0..DEVICES as u64));
        self.whole_file(0, pages);
        self.whole_file(1, pages);
        self.ops.push(Op::Import { device, buf });
        for _ in 0..3 {
            let cut = self.random.in_range(1..pages) * P;
            let (chunk, depth, direct, at) = (P, 2, 1, 0);
            let (offset, length) = (cut, pages * P - cut);
            self.ops.extend([
                Op::Together { count: 2 },
                Op::Read { buf, file: 0, at, offset: 0, length: cut, chunk, depth, direct },
                Op::Read { buf, file: 1, at, offset, length, chunk, depth, direct },
                Op::DeviceRead { device },
            ]);
            let at = self.random.in_range(0..pages * P);
            let (length, stamp) = (self.random.in_range(1..3 * P), self.stamp());
            self.ops.push(Op::DeviceWrite { device, at, length, stamp });
            self.transfer(super::Read);
            self.ops.push(Op::DeviceRead { device });
        }
        self.ops.push(Op::DeviceDrop { device });
    }

    /// A signal arrives in a load of many small requests, and another range is asked for.
    fn interrupted_load(&mut self) {
        let (buf, pages) = (self.random.in_range(0..BUFFERS as u64), 128);
        self.whole_file(0, pages);
        self.ops.push(Op::FileUncache { file: 0 });
        for _ in 0..4 {
            let at = self.random.in_range(0..pages / 4) * P;
            let (microseconds, length) = (self.random.in_range(1..4000), pages / 2 * P);
            let (direct, other) = (self.random.in_range(0..2), self.random.in_range(0..3));
            self.ops.push(Op::Signal { microseconds });
            let (file, chunk, depth, gather, writable) = (0, P, 1, 1, 1);
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
        }
        self.buffers[buf as usize] = Some(pages / 2);
    }

    /// A transfer whose disk does not answer makes no other wait.
    fn stalled_disk(&mut self) {
        let pages = self.random.in_range(2..24);
        // Neither may have its own reasons: a disk that fails, devices that need turns.
        self.ops.push(Op::Heal {});
        self.ops.extend((0..DEVICES as u64).map(|device| Op::DeviceDrop { device }));
        let mostly = !self.random.one_in(4);
        let buf = if mostly {
            self.heap(pages)
        } else {
            let (store, stamp) = (self.small_store(pages), self.stamp());
            self.ops.push(Op::StoreWrite { store, page: 0, pages, stamp });
            let buf = self.whole_udmabuf(store, pages);
            self.ops.push(Op::Attach { buf });
            buf
        };
        self.whole_file(0, pages);
        let cut = self.random.in_range(1..pages) * P;
        let (at, chunk, depth, direct) = (0, 0, 0, 1);
        let (offset, length) = (cut, pages * P - cut);
        self.ops.push(Op::Stall {});
        self.ops.push(Op::Together { count: 2 });
        self.ops.push(Op::Read {
            buf,
            file: DISK,
            at,
            offset: 0,
            length: cut,
            chunk,
            depth,
            direct,
        });
        self.ops.push(if self.random.one_in(2) {
            Op::Read { buf, file: 0, at, offset, length, chunk, depth, direct }
        } else {
            Op::Write { buf, file: 0, at, offset, length, chunk, depth, direct }
        });
    }

    /// A buffer of pages none of which is adjacent to the next.
    fn scattered(&mut self) {
        let pages = self.random.in_range(40..200);
        self.stores = [Some(pages), Some(pages), None];
        self.ops.extend((0..2).map(|store| Op::Store { store, pages }));
        self.stamp += 2;
        self.ops.push(Op::StoreScatter { store: 0, store2: 1, stamp: self.stamp - 1 });
        let buf = self.whole_udmabuf(0, pages);
        self.ops.push(Op::Attach { buf });
        self.whole_file(0, pages);
        for read in [true, false] {
            self.whole(read, buf, 0, pages);
            self.transfer(if read { super::Read } else { super::Write });
        }
    }

    /// WRITE to a disk that has room for a part, for all, for nothing.
    fn full_disk(&mut self) {
        let pages = self.random.in_range(2..40);
        let buf = self.heap(pages);
        let (stamp, direct) = (self.stamp(), self.random.in_range(0..2));
        self.ops.push(Op::Fill { buf, offset: 0, length: pages * P, stamp });
        let length = self.random.in_range(1..pages * P + 1);
        let left = self.random.in_range(0..pages + 20);
        self.ops.push(Op::WriteFull { buf, length, direct, left });
    }

    /// A device has a fence on the buffer, which concerns the transfer or does not.
    fn fenced(&mut self) {
        let pages = self.random.in_range(1..16);
        let buf = self.heap(pages);
        self.whole_file(0, pages);
        for _ in 0..2 {
            let (stores, microseconds) =
                (self.random.in_range(0..2), self.random.in_range(1..60_000));
            self.ops.push(Op::Fence { buf, stores, microseconds });
            if self.random.one_in(4) {
                let microseconds = self.random.in_range(1..30_000);
                self.ops.push(Op::Signal { microseconds });
            }
            let read = self.random.one_in(2);
            self.whole(read, buf, 0, pages);
        }
    }

    /// Memory of loads: more than there is, and again and again.
    fn too_much(&mut self) {
        if self.random.one_in(4) {
            return self.ops.push(Op::LoadTooMuch {});
        }
        let length = self.random.in_range(1 << 20..16 << 20);
        let count = (160 << 20) / length;
        self.ops.push(Op::LoadOften { length, count });
    }
}
