// SPDX-License-Identifier: MIT OR Apache-2.0
//! What values a field of a call has: those that make sense, and those that do not.

use crate::random::Random;

/// The length of buffers, in bytes.
pub(crate) const BUFFER: u64 = 64 << 10;
/// The length of files: they end inside a block.
pub(crate) const FILE: u64 = 74_565;
/// Indices that rings have.
pub(crate) const SLOTS: u64 = 4;
/// Descriptors by place. Those before `file` are dma-bufs, from `ctx0` on they change.
pub(crate) const THINGS: &[&str] = &[
    "heap",
    "heap-read-only",
    "heap-write-only",
    "udmabuf",
    "udmabuf-unfilled",
    "udmabuf-huge",
    "vgem",
    "odd",
    "odd-uncounted",
    "odd-reserved",
    "odd-unmapped",
    "loaded",
    "loaded-read-only",
    "file",
    "direct",
    "append",
    "read-only",
    "write-only",
    "path",
    "hole",
    "memfd",
    "memfd-unfilled",
    "memfd-own",
    "disk",
    "disk-direct",
    "proc",
    "folder",
    "pipe",
    "socket",
    "null",
    "minus-one",
    "closed",
    "ctx0",
    "ctx1",
    "ctx2",
    "spare0",
    "spare1",
    "ring0",
    "ring1",
];
pub(crate) const FIRST_FILE: usize = 13;
const FILES: u64 = 13;
pub(crate) const CONTEXT: usize = 32;
const CONTEXTS: u64 = 3;
pub(crate) const SPARE: usize = 35;
pub(crate) const RINGS: usize = 37;

/// Where a structure is.
pub(crate) const MEMORY: &[&str] =
    &["good", "odd-address", "cut", "read-only", "null", "kernel", "beyond", "wraps", "buffer"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Domain {
    Context,
    Buffer,
    File,
    Any,
    /// A place for a new descriptor
    Spare,
    Ring,
    Memory,
    Size,
    /// Of an ioctl's number
    Direction,
    Magic,
    Number,
    /// Must be zero, or does not matter
    Zero,
    Switch,
    OpenFlags,
    SlotFlags,
    Offset,
    Length,
    Chunk,
    Depth,
    Index,
    Count,
    Time,
    Mode,
    Advice,
}

const INTERESTING: &[u64] = &[
    0,
    1,
    2,
    3,
    511,
    512,
    513,
    4095,
    4096,
    4097,
    8191,
    8192,
    BUFFER - 4096,
    BUFFER - 1,
    BUFFER,
    BUFFER + 1,
    FILE - 1,
    FILE,
    FILE + 1,
    FILE - BUFFER,
    1 << 20,
    1 << 27,
    (1 << 27) + 4096,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 4096,
    (1 << 32) - 1,
    1 << 32,
    (1 << 32) + 4096,
    (1 << 63) - 4096,
    (1 << 63) - 1,
    1 << 63,
    (1 << 63) + 1,
    u64::MAX - BUFFER,
    u64::MAX - 4095,
    u64::MAX - 1,
    u64::MAX,
];

impl Domain {
    pub(crate) fn is_descriptor(self) -> bool {
        matches!(self, Self::Context | Self::Buffer | Self::File | Self::Any | Self::Spare)
    }

    fn words(self) -> Option<&'static [&'static str]> {
        match self {
            Self::Memory => Some(MEMORY),
            _ if self.is_descriptor() => Some(THINGS),
            _ => None,
        }
    }

    /// What a value is called, if it is no number.
    pub(crate) fn word(self, value: u64) -> Option<&'static str> {
        self.words()?.get(value as usize).copied()
    }

    pub(crate) fn value(self, word: &str) -> Option<u64> {
        self.words()?.iter().position(|one| *one == word).map(|place| place as u64)
    }

    /// A value that makes sense. `size`: of the structure.
    pub(crate) fn draw(self, random: &mut Random, size: u64) -> u64 {
        match self {
            // So that calls have to do with each other
            Self::Context if random.one_in(2) => CONTEXT as u64,
            Self::Context => CONTEXT as u64 + random.in_range(0..CONTEXTS),
            Self::Buffer => random.in_range(0..FIRST_FILE as u64),
            Self::File if random.one_in(4) => FIRST_FILE as u64 + random.in_range(0..FILES),
            Self::File => FIRST_FILE as u64 + random.in_range(0..2),
            Self::Any => random.in_range(0..THINGS.len() as u64),
            Self::Spare => SPARE as u64 + random.in_range(0..2),
            Self::Ring => u64::from(random.one_in(6)),
            Self::Switch => u64::from(random.one_in(16)),
            Self::Memory | Self::Zero => 0,
            Self::Size => size,
            Self::Direction => 3,
            Self::Magic => 0xdb,
            Self::Number => random.pick(&[0, 1, 2, 3, 4, 5, 6, 7, 0x7f, 0x80, 0x81, 0x82, 0xff]),
            Self::OpenFlags => random.pick(&[0, 2, 0o2_000_000, 0o2_000_002]),
            Self::SlotFlags => random.in_range(1..4),
            Self::Index | Self::Offset | Self::Chunk if random.one_in(2) => 0,
            Self::Offset if random.one_in(2) => random.in_range(0..18) * 4096,
            Self::Offset if random.one_in(2) => random.in_range(0..144) * 512,
            Self::Offset => random.in_range(0..FILE),
            Self::Length if random.one_in(3) => BUFFER,
            Self::Length if random.one_in(2) => random.in_range(1..16) * 4096,
            Self::Length => random.in_range(0..BUFFER),
            Self::Chunk => random.in_range(1..5) * 4096,
            Self::Depth => random.in_range(0..5),
            Self::Index => random.in_range(0..SLOTS),
            Self::Count => random.in_range(1..3),
            Self::Time => random.in_range(1..3000),
            // Also: keep size; punch; zero; collapse; insert
            Self::Mode => random.pick(&[0, 1, 3, 0x10, 0x11, 0x08, 0x20]),
            // Also: remove; free; cold; page out; populate; collapse
            Self::Advice => random.pick(&[0, 1, 2, 3, 4, 8, 9, 10, 14, 20, 21, 22, 23, 25]),
        }
    }

    /// A value that may not.
    pub(crate) fn wild(self, random: &mut Random, size: u64) -> u64 {
        match self {
            _ if self.is_descriptor() => random.in_range(0..THINGS.len() as u64),
            Self::Memory => random.in_range(0..MEMORY.len() as u64),
            Self::Size => match random.in_range(0..3) {
                0 => random.in_range(0..size),
                1 => size + random.in_range(1..17),
                _ => random.pick(&[0, 1, 4095, 4096, 4097, 8192, 16383, 2 * size]),
            },
            Self::Direction => random.in_range(0..4),
            // No others: FIFREEZE is one of them. 'b' is that of dma-bufs.
            Self::Magic => random.pick(&[0, 0x62, 0xda, 0xdb, 0xdc]),
            Self::Number => random.in_range(0..256),
            Self::Ring | Self::Switch => 1,
            // As a flag
            Self::Zero | Self::OpenFlags | Self::SlotFlags | Self::Advice if random.one_in(2) => {
                1 << random.in_range(0..32)
            }
            Self::Mode => random.in_range(0..128),
            Self::Time => random.in_range(1..50_000),
            Self::Depth if random.one_in(2) => random.pick(&[63, 64, 65]),
            _ => random.pick(INTERESTING),
        }
    }

    /// A value that is not far from another.
    pub(crate) fn near(self, random: &mut Random, value: u64, size: u64) -> u64 {
        if self.words().is_some() || self == Self::Magic || random.one_in(2) {
            return self.draw(random, size);
        }
        match random.in_range(0..6) {
            0 => value.wrapping_add(1),
            1 => value.wrapping_sub(1),
            2 => value ^ (1 << random.in_range(0..64)),
            3 => value.wrapping_add(random.pick(&[512, 4096])),
            4 => value.wrapping_sub(random.pick(&[512, 4096])),
            _ => self.wild(random, size),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_those_of_their_names() {
        let place = |name| THINGS.iter().position(|one| *one == name);
        assert_eq!(place("file"), Some(FIRST_FILE));
        assert_eq!(place("ctx0"), Some(CONTEXT));
        assert_eq!(place("spare0"), Some(SPARE));
        assert_eq!(place("ring0"), Some(RINGS));
        assert_eq!(place("folder"), Some(FIRST_FILE + FILES as usize));
    }

    #[test]
    fn values_have_names_or_make_sense() {
        let mut random = Random::of_round(1, 1);
        assert_eq!(Domain::Size.draw(&mut random, 72), 72);
        let sizes = (0..100).filter(|_| Domain::Size.wild(&mut random, 72) == 72).count();
        assert!(sizes < 10, "{sizes}");
        assert_eq!(Domain::Memory.value("cut"), Some(2));
        assert_eq!(Domain::Context.word(CONTEXT as u64 + 1), Some("ctx1"));
        assert_eq!(Domain::Length.word(1), None);
    }
}
