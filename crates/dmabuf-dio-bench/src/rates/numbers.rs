// SPDX-License-Identifier: MIT OR Apache-2.0
//! The numbers of the frames in a file.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use crate::measure::outcome::{Status, Trouble, io_failed};

const FRAME: usize = 8;
const PIECE: usize = 1 << 20;

/// What a file has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Numbers {
    pub(super) frames: u64,
    /// Frames that the device has numbered and that are not in the file, up to the last one in it.
    pub(super) lost: u64,
    /// Places at which some are missing.
    pub(super) gaps: u64,
    /// The number that would be next.
    next: u64,
}

impl Numbers {
    /// Looks at every frame.
    pub(super) fn of(path: &Path) -> Result<Self, Trouble> {
        let failed = io_failed("reading the file");
        let mut file = File::open(path).map_err(&failed)?;
        let mut found = Self::default();
        let mut piece = vec![0; PIECE];
        let mut filled = 0;
        loop {
            match file.read(&mut piece[filled..]).map_err(&failed)? {
                0 if filled == 0 => return Ok(found),
                0 => {
                    let what = format!("the file ends within frame {}", found.next);
                    return Err(Trouble::new(Status::Different, what));
                }
                count => filled += count,
            }
            let whole = filled / FRAME * FRAME;
            found.add(&piece[..whole])?;
            piece.copy_within(whole..filled, 0);
            filled -= whole;
        }
    }

    fn add(&mut self, frames: &[u8]) -> Result<(), Trouble> {
        for frame in frames.chunks_exact(FRAME) {
            let number = u64::from_le_bytes(frame.try_into().unwrap_or_default());
            if number != self.next {
                if number < self.next {
                    let what = format!("frame {number} comes where {} should", self.next);
                    return Err(Trouble::new(Status::Different, what));
                }
                self.lost += number - self.next;
                self.gaps += 1;
            }
            self.next = number + 1;
            self.frames += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(numbers: &[u64]) -> Result<Numbers, Trouble> {
        let bytes: Vec<u8> = numbers.iter().copied().flat_map(u64::to_le_bytes).collect();
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), bytes).expect("written");
        Numbers::of(file.path())
    }

    #[test]
    fn missing_frame_numbers_are_counted() {
        assert_eq!(of(&[]), Ok(Numbers::default()));
        assert_eq!(of(&[0, 1, 2]), Ok(Numbers { frames: 3, lost: 0, gaps: 0, next: 3 }));
        assert_eq!(of(&[2, 3, 9]), Ok(Numbers { frames: 3, lost: 7, gaps: 2, next: 10 }));
        let many: Vec<u64> = (0..300_000).chain(300_001..300_003).collect();
        assert_eq!(of(&many), Ok(Numbers { frames: 300_002, lost: 1, gaps: 1, next: 300_003 }));
    }

    #[test]
    fn repeated_frame_number_is_an_error() {
        for numbers in [&[0, 1, 1][..], &[5, 4]] {
            assert_eq!(of(numbers).map_err(|trouble| trouble.status), Err(Status::Different));
        }
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), [0; 12]).expect("written");
        assert!(Numbers::of(file.path()).is_err());
    }
}
