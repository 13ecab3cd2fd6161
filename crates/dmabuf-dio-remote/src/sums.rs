// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sums of the chunks of a file, and checking them while bytes arrive.

use std::collections::BTreeSet;
use std::io::Read;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use dmabuf_dio::{Errno, Error};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// What the file of sums begins with.
const FORMAT: &str = "dmabuf-dio sums 1";

/// The SHA-256 of each chunk of a file, and its length. `dmabuf-dio sum` writes it as JSON:
/// `{"format":"dmabuf-dio sums 1","length":…,"chunk_size":…,"sha256":["…",…]}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sums {
    length: u64,
    chunk_size: u64,
    sha256: Vec<[u8; 32]>,
}

/// Why sums cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum SumsError {
    /// The text is not the JSON of sums, or its numbers do not fit together.
    Malformed(String),
    /// What is to be summed cannot be read.
    Read(std::io::Error),
}

impl std::fmt::Display for SumsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Malformed(why) => write!(f, "these are no sums: {why}"),
            Self::Read(error) => write!(f, "cannot read what is to be summed: {error}"),
        }
    }
}

impl std::error::Error for SumsError {}

/// The JSON.
#[derive(Serialize, Deserialize)]
struct Written {
    format: String,
    length: u64,
    chunk_size: u64,
    sha256: Vec<String>,
}

impl Sums {
    /// The chunk size unless another is chosen, in bytes.
    pub const CHUNK_SIZE: u64 = 8 << 20;

    /// Sums everything that a reader gives, in chunks of so many bytes, at least 1.
    ///
    /// # Errors
    ///
    /// [`SumsError::Read`].
    pub fn of(mut reader: impl Read, chunk_size: u64) -> Result<Self, SumsError> {
        let chunk_size = chunk_size.max(1);
        let (mut length, mut sha256) = (0, Vec::new());
        let mut piece = vec![0; 1 << 20];
        loop {
            let (mut hash, mut left) = (Sha256::new(), chunk_size);
            while left > 0 {
                let most = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                let got = match reader.read(&mut piece[..most]) {
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                    got => got.map_err(SumsError::Read)?,
                };
                if got == 0 {
                    break;
                }
                hash.update(&piece[..got]);
                left -= got as u64;
            }
            length += chunk_size - left;
            if left < chunk_size {
                sha256.push(hash.finalize().into());
            }
            if left > 0 {
                return Ok(Self { length, chunk_size, sha256 });
            }
        }
    }

    /// Reads a file that `dmabuf-dio sum` wrote.
    ///
    /// # Errors
    ///
    /// [`Error::Content`], with the file's own path.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let fail = |errno, what| Error::Content {
            name: path.to_owned(),
            offset: 0,
            length: 0,
            what,
            errno,
            remedy: "write it: dmabuf-dio sum FILE".into(),
        };
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|error| fail(Errno::from(&error), error.to_string()))?;
        Self::parse(&text).map_err(|error| fail(Errno::from_raw(libc::EINVAL), error.to_string()))
    }

    /// Reads JSON.
    ///
    /// # Errors
    ///
    /// [`SumsError::Malformed`].
    pub fn parse(json: &str) -> Result<Self, SumsError> {
        let malformed = |why: &str| SumsError::Malformed(why.to_owned());
        let written: Written =
            serde_json::from_str(json).map_err(|error| malformed(&error.to_string()))?;
        if written.format != FORMAT {
            return Err(malformed("the format is another one"));
        }
        if written.chunk_size == 0 {
            return Err(malformed("the chunk size is 0"));
        }
        if written.length.div_ceil(written.chunk_size) != written.sha256.len() as u64 {
            return Err(malformed("there are more or fewer sums than chunks"));
        }
        let sums = written.sha256.iter().map(|text| parse_hex(text)).collect::<Option<Vec<_>>>();
        let sha256 = sums.ok_or_else(|| malformed("a sum has not 64 hexadecimal digits"))?;
        Ok(Self { length: written.length, chunk_size: written.chunk_size, sha256 })
    }

    /// As JSON, one line.
    pub fn to_json(&self) -> String {
        let sha256 = self.sha256.iter().map(hex).collect();
        let (length, chunk_size) = (self.length, self.chunk_size);
        let written = Written { format: FORMAT.into(), length, chunk_size, sha256 };
        serde_json::to_string(&written).unwrap_or_default()
    }

    /// Bytes of the whole.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Bytes of a chunk; the last one may be shorter.
    pub fn chunk_size(&self) -> u64 {
        self.chunk_size
    }

    pub(crate) fn chunk(&self, number: u64) -> Range<u64> {
        let start = number * self.chunk_size;
        start..start.saturating_add(self.chunk_size).min(self.length)
    }

    fn sum(&self, number: u64) -> Option<&[u8; 32]> {
        self.sha256.get(usize::try_from(number).ok()?)
    }

    /// Parses the 64 digits of a SHA-256.
    pub fn parse_sha256(text: &str) -> Option<[u8; 32]> {
        parse_hex(text)
    }
}

pub(crate) fn hex(sum: &[u8; 32]) -> String {
    let digit = |value: u8| char::from_digit(value.into(), 16).unwrap_or('?');
    sum.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

fn parse_hex(text: &str) -> Option<[u8; 32]> {
    if text.len() != 64 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let mut sum = [0; 32];
    for (byte, at) in sum.iter_mut().zip((0..64).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).ok()?;
    }
    Some(sum)
}

/// The chunks of a range, while their bytes arrive in order.
pub(crate) struct Checking {
    sums: Arc<Sums>,
    /// What is wanted: only that counts.
    range: Range<u64>,
    hash: Sha256,
    /// The chunk that differs.
    differing: Option<Differing>,
    /// Chunks that differed once.
    tried: BTreeSet<u64>,
}

/// A chunk that differs from its sum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Differing {
    pub(crate) chunk: Range<u64>,
    /// Whether it differed before, too.
    pub(crate) again: bool,
}

impl Checking {
    pub(crate) fn new(sums: &Arc<Sums>, range: Range<u64>) -> Self {
        let (sums, hash) = (Arc::clone(sums), Sha256::new());
        Self { sums, range, hash, differing: None, tried: BTreeSet::new() }
    }

    /// The chunks that the range touches.
    pub(crate) fn cover(&self) -> Range<u64> {
        let size = self.sums.chunk_size;
        self.range.start / size * size..self.sums.chunk((self.range.end - 1) / size).end
    }

    /// Adds the bytes at `at`, which follow those before. Returns how many wanted bytes have turned out good. After a
    /// chunk that differs, the rest is ignored.
    pub(crate) fn add(&mut self, mut at: u64, mut bytes: &[u8]) -> u64 {
        let mut good = 0;
        while !bytes.is_empty() && self.differing.is_none() {
            let number = at / self.sums.chunk_size;
            let chunk = self.sums.chunk(number);
            let some = bytes.len().min((chunk.end - at) as usize);
            self.hash.update(&bytes[..some]);
            at += some as u64;
            bytes = &bytes[some..];
            if at < chunk.end {
                break;
            }
            let found: [u8; 32] = self.hash.finalize_reset().into();
            if self.sums.sum(number) == Some(&found) {
                let wanted = chunk.start.max(self.range.start)..chunk.end.min(self.range.end);
                good += wanted.end.saturating_sub(wanted.start);
            } else {
                let again = !self.tried.insert(number);
                self.differing = Some(Differing { chunk, again });
            }
        }
        good
    }

    pub(crate) fn has_differing(&self) -> bool {
        self.differing.is_some()
    }

    /// The chunk that differs, which is then to be added again from its start.
    pub(crate) fn take_differing(&mut self) -> Option<Differing> {
        self.differing.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
    }

    #[test]
    fn sums_are_written_and_read() {
        for (len, chunks) in [(0, 0), (1, 1), (9, 1), (10, 1), (11, 2), (30, 3)] {
            let sums = Sums::of(&bytes(len)[..], 10).expect("read");
            assert_eq!((sums.length, sums.sha256.len()), (len as u64, chunks));
            assert_eq!(Sums::parse(&sums.to_json()).expect("sums"), sums);
        }
        let good = Sums::of(&bytes(20)[..], 10).expect("read").to_json();
        for (from, to) in [
            ("sums 1", "sums 2"),
            ("\"length\":20", "\"length\":21"),
            ("\"chunk_size\":10", "\"chunk_size\":0"),
            ("sha256\":[\"", "sha256\":[\"x"),
        ] {
            let wrong = good.replace(from, to);
            assert_ne!(wrong, good);
            assert!(matches!(Sums::parse(&wrong), Err(SumsError::Malformed(_))), "{wrong}");
        }
    }

    #[test]
    fn chunks_are_good_or_differ() {
        let all = bytes(35);
        let sums = Arc::new(Sums::of(&all[..], 10).expect("read"));
        for piece in 1..36 {
            let mut checking = Checking::new(&sums, 12..33);
            assert_eq!(checking.cover(), 10..35);
            let mut good = 0;
            for (number, some) in all[10..].chunks(piece).enumerate() {
                good += checking.add(10 + (number * piece) as u64, some);
            }
            assert_eq!((good, checking.has_differing()), (21, false), "{piece}");
        }
        let mut checking = Checking::new(&sums, 0..35);
        let mut wrong = all.clone();
        wrong[15] ^= 1;
        for again in [false, true] {
            assert_eq!(
                checking.add(if again { 10 } else { 0 }, &wrong[if again { 10 } else { 0 }..]),
                if again { 0 } else { 10 }
            );
            let differing = checking.take_differing().expect("it differs");
            assert_eq!(differing, Differing { chunk: 10..20, again });
        }
        let mut checking = Checking::new(&sums, 0..35);
        assert_eq!(checking.add(0, &wrong), 10);
        assert!(checking.take_differing().is_some());
        assert_eq!(checking.add(10, &all[10..]), 25, "it was right the second time");
    }
}
