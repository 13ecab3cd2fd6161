// SPDX-License-Identifier: MIT OR Apache-2.0
//! The log of `drivers/md/dm-log-writes.c`: what a disk was told, in the order in which it became
//! durable, with marks.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use crate::mapper::SECTOR;

const MAGIC: u64 = 0x006a_7366_7773_6872;
const FLUSH: u64 = 1;
const FUA: u64 = 2;
const DISCARD: u64 = 4;
const MARK: u64 = 8;

/// An entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// What was written before is durable.
    pub(crate) flush: bool,
    /// It is durable itself.
    pub(crate) fua: bool,
    pub(crate) discard: bool,
    pub(crate) mark: Option<String>,
    /// In bytes
    pub(crate) at: u64,
    /// In bytes
    pub(crate) length: u64,
    /// Where the data is in the log, in bytes.
    data: u64,
}

impl Entry {
    /// Whether both are of some byte.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        self.at < other.at + other.length && other.at < self.at + self.length
    }
}

/// A log that nobody writes any more.
pub(crate) struct Log {
    file: File,
    pub(crate) entries: Vec<Entry>,
}

fn number(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}

impl Log {
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let failed = |error| format!("the log of writes, {}: {error}", path.display());
        let file = File::open(path).map_err(failed)?;
        let mut head = [0; 32];
        file.read_exact_at(&mut head, 0).map_err(failed)?;
        let (count, sector) = (number(&head, 16), number(&head, 24) & 0xffff_ffff);
        if number(&head, 0) != MAGIC || number(&head, 8) != 1 || sector < 512 {
            return Err("the log of writes has another format than that of Linux 4.1 to 7.3".into());
        }
        let mut entries = Vec::new();
        let mut place = sector;
        for _ in 0..count {
            let mut bytes = vec![0; sector as usize];
            file.read_exact_at(&mut bytes, place).map_err(failed)?;
            let (entry, data) = decode(&bytes, sector, place + sector);
            place += sector + data;
            entries.push(entry);
        }
        Ok(Self { file, entries })
    }

    /// What an entry writes; a discard leaves zeroes.
    pub(crate) fn bytes(&self, entry: &Entry) -> Result<Vec<u8>, String> {
        let mut bytes = vec![0; entry.length as usize];
        if !entry.discard {
            let read = self.file.read_exact_at(&mut bytes, entry.data);
            read.map_err(|error| format!("the log of writes: {error}"))?;
        }
        Ok(bytes)
    }

    /// Fails if a disk on which all was written has something else than the log: a log that is not in order
    /// is of no use.
    pub(crate) fn compare(&self, disk: &Path) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("{}: {error}", disk.display());
        let mut newest = BTreeMap::new();
        for entry in &self.entries {
            for at in (entry.at..entry.at + entry.length).step_by(SECTOR as usize) {
                newest.insert(at, entry);
            }
        }
        let disk = File::open(disk).map_err(failed)?;
        let (mut logged, mut there) = ([0; SECTOR as usize], [0; SECTOR as usize]);
        for (at, entry) in newest {
            logged.fill(0);
            if !entry.discard {
                let read = self.file.read_exact_at(&mut logged, entry.data + (at - entry.at));
                read.map_err(|error| format!("the log of writes: {error}"))?;
            }
            disk.read_exact_at(&mut there, at).map_err(failed)?;
            if logged != there {
                return Err(format!(
                    "the log of writes is not in order: the disk differs at {at:#x}"
                ));
            }
        }
        Ok(())
    }
}

/// An entry, and how much data follows it.
fn decode(bytes: &[u8], sector: u64, data: u64) -> (Entry, u64) {
    let (flags, marked) = (number(bytes, 16), number(bytes, 24) as usize);
    let has = |flag| flags & flag != 0;
    let text = || String::from_utf8_lossy(bytes.get(32..32 + marked).unwrap_or_default()).into();
    let entry = Entry {
        flush: has(FLUSH),
        fua: has(FUA),
        discard: has(DISCARD),
        mark: has(MARK).then(text),
        at: number(bytes, 0) * sector,
        length: number(bytes, 8) * sector,
        data,
    };
    let follows = if entry.discard { 0 } else { entry.length };
    (entry, follows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(words: [u64; 4], text: &str) -> Vec<u8> {
        let mut bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        bytes.extend_from_slice(text.as_bytes());
        bytes.resize(512, 0);
        bytes
    }

    #[test]
    fn entries_are_read() {
        let (entry, data) = decode(&encoded([8, 2, FLUSH | FUA, 0], ""), 512, 1024);
        assert_eq!((entry.at, entry.length, data), (4096, 1024, 1024));
        assert!(entry.flush && entry.fua && !entry.discard && entry.mark.is_none());
        let (entry, data) = decode(&encoded([0, 0, MARK, 2], "17"), 512, 1024);
        assert_eq!((entry.mark.as_deref(), data), (Some("17"), 0));
        // A discard has a length, and no data in the log.
        let (entry, data) = decode(&encoded([8, 2, DISCARD, 0], ""), 512, 1024);
        assert_eq!((entry.length, data), (1024, 0));
    }

    #[test]
    fn entries_meet_in_a_byte() {
        let entry = |sector| decode(&encoded([sector, 2, 0, 0], ""), 512, 1024).0;
        assert!(entry(8).meets(&entry(9)) && entry(9).meets(&entry(8)));
        assert!(!entry(8).meets(&entry(10)) && !entry(10).meets(&entry(8)));
    }
}
