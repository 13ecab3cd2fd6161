// SPDX-License-Identifier: MIT OR Apache-2.0
//! Small reads at random places of a RAM disk, by the library; each block holds its own number.

use std::os::unix::fs::FileExt as _;

use dmabuf_dio::Buffer;
use dmabuf_dio::gather::{Gatherer, Gathering, Piece};

use crate::random::Random;
use crate::soak::Part;
use crate::soak::disk::Disk;

const BLOCK: u64 = 512;
const PIECES: u64 = 1024;
/// Bytes of the disk that are read.
const AREA: u64 = 64 << 20;

pub(crate) struct Gathers {
    disk: Disk,
    buffer: Buffer,
    gathering: Gathering,
    random: Random,
    pieces: u64,
    requests: u64,
}

impl Gathers {
    pub(crate) fn new() -> Result<Self, String> {
        let failed = |error: dmabuf_dio::Error| error.to_string();
        let disk = Disk::open("nullb1")?;
        let plain = std::fs::File::options().write(true).open(&disk.path);
        let plain = plain.map_err(|error| format!("the RAM disk: {error}"))?;
        let bytes: Vec<u8> = (0..AREA / BLOCK).flat_map(number).collect();
        plain.write_all_at(&bytes, 0).map_err(|error| format!("the RAM disk: {error}"))?;
        plain.sync_all().map_err(|error| format!("the RAM disk: {error}"))?;
        let buffer = Buffer::alloc(PIECES * BLOCK).map_err(failed)?;
        let gathering = Gatherer::new(&disk.path).open(&buffer).map_err(failed)?;
        // What was written above is not counted.
        let disk = Disk::open("nullb1")?;
        Ok(Self { disk, buffer, gathering, random: Random::of_round(1, 0), pieces: 0, requests: 0 })
    }
}

/// A block that holds its number over and over.
fn number(block: u64) -> [u8; BLOCK as usize] {
    let mut bytes = [0; BLOCK as usize];
    for part in bytes.chunks_exact_mut(8) {
        part.copy_from_slice(&block.to_le_bytes());
    }
    bytes
}

impl Part for Gathers {
    fn name(&self) -> &'static str {
        "gathers"
    }

    fn turn(&mut self) -> Result<u64, String> {
        let failed = |error: dmabuf_dio::Error| error.to_string();
        let blocks: Vec<u64> = (0..PIECES).map(|_| self.random.in_range(0..AREA / BLOCK)).collect();
        let piece =
            |(place, block)| Piece { offset: block * BLOCK, buf_offset: place * BLOCK, len: BLOCK };
        let pieces: Vec<Piece> = (0..).zip(blocks.iter().copied()).map(piece).collect();
        let gathered = self.gathering.read(&pieces).map_err(failed)?;
        let report = gathered.report();
        let view = self.buffer.map().map_err(failed)?;
        let mut bytes = vec![0; (PIECES * BLOCK) as usize];
        view.read_at(0, &mut bytes).map_err(failed)?;
        for (place, block) in blocks.iter().enumerate() {
            let found = gathered.get(place).ok_or("a piece is missing")?;
            let found = found.map_err(|error| format!("a piece: {error}"))?;
            let (start, end) = (found.start as usize, (found.start + found.len) as usize);
            if bytes[start..end] != number(*block) {
                return Err(format!("piece {place} is not block {block}"));
            }
        }
        self.pieces += PIECES;
        self.requests += report.requests;
        Ok(PIECES)
    }

    fn judge(&mut self) -> Result<String, String> {
        let counted = self.disk.counted()?;
        let backend = self.gathering.backend();
        if (counted.reads, counted.written) != (self.requests, 0) {
            return Err(format!(
                "the device counted {counted:?}, {} requests were reported",
                self.requests
            ));
        }
        Ok(format!("requests={} bytes={} backend={backend}", self.requests, counted.read))
    }
}
