// SPDX-License-Identifier: MIT OR Apache-2.0
//! A header and the tensors after it, as one reader.

use std::io::{self, BufRead, ErrorKind, Read};

/// The bytes of a file in order. A tensor is opened when everything before it was read, and dropped
/// before the next one is opened.
pub(crate) struct Parts<'a, R, F> {
    /// What is left of the header.
    header: &'a [u8],
    /// Index and length of each tensor that is not open yet.
    next: std::slice::Iter<'a, (usize, u64)>,
    open: F,
    /// The open tensor, and how many of its bytes are left.
    opened: Option<(R, u64)>,
}

impl<'a, R: BufRead, F: FnMut(usize) -> io::Result<R>> Parts<'a, R, F> {
    pub(crate) fn new(header: &'a [u8], parts: &'a [(usize, u64)], open: F) -> Self {
        Self { header, next: parts.iter(), open, opened: None }
    }

    /// Opens the next tensor that has bytes, if none is open.
    fn open_next(&mut self) -> io::Result<()> {
        while self.opened.as_ref().is_none_or(|(_, left)| *left == 0) {
            self.opened = None;
            let Some(&(index, len)) = self.next.next() else { break };
            if len > 0 {
                self.opened = Some(((self.open)(index)?, len));
            }
        }
        Ok(())
    }
}

impl<R: BufRead, F: FnMut(usize) -> io::Result<R>> BufRead for Parts<'_, R, F> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if !self.header.is_empty() {
            return Ok(self.header);
        }
        self.open_next()?;
        let Some((reader, left)) = &mut self.opened else { return Ok(&[]) };
        let bytes = reader.fill_buf()?;
        if bytes.is_empty() {
            let text = format!("a tensor ends {left} bytes early");
            return Err(io::Error::new(ErrorKind::UnexpectedEof, text));
        }
        let len = usize::try_from(*left).map_or(bytes.len(), |left| left.min(bytes.len()));
        Ok(&bytes[..len])
    }

    fn consume(&mut self, amount: usize) {
        if self.header.is_empty() {
            if let Some((reader, left)) = &mut self.opened {
                reader.consume(amount);
                *left -= amount as u64;
            }
        } else {
            self.header = &self.header[amount..];
        }
    }
}

impl<R: BufRead, F: FnMut(usize) -> io::Result<R>> Read for Parts<'_, R, F> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let len = self.fill_buf()?.read(out)?;
        self.consume(len);
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Counts how many of it there are.
    struct Counted<'a>(&'a [u8], &'a Cell<u32>);

    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.1.set(self.1.get() - 1);
        }
    }

    impl Read for Counted<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            self.0.read(out)
        }
    }

    impl BufRead for Counted<'_> {
        fn fill_buf(&mut self) -> io::Result<&[u8]> {
            // Two bytes at a time.
            Ok(&self.0[..self.0.len().min(2)])
        }

        fn consume(&mut self, amount: usize) {
            self.0.consume(amount);
        }
    }

    #[test]
    fn parts_are_read_in_order_and_one_at_a_time() {
        let (all, alive) = ([&b"abcdef"[..], b"", b"ghi"], Cell::new(0));
        let mut opened = Vec::new();
        let open = |index: usize| {
            opened.push(index);
            assert_eq!(alive.replace(1), 0, "the one before is gone");
            Ok(Counted(all[index], &alive))
        };
        // Of the first, which has more, only what is asked for.
        let parts = [(2, 3), (1, 0), (0, 5)];
        let mut found = Vec::new();
        Parts::new(b"head", &parts, open).read_to_end(&mut found).expect("read");
        assert_eq!(found, b"headghiabcde");
        assert_eq!((opened, alive.get()), (vec![2, 0], 0), "an empty one is not opened");
    }

    #[test]
    fn short_or_failing_part_is_an_error() {
        let mut out = Vec::new();
        let short = Parts::new(b"", &[(0, 3)], |_| Ok(&b"ab"[..])).read_to_end(&mut out);
        let short = short.expect_err("a byte is missing");
        assert_eq!(short.kind(), ErrorKind::UnexpectedEof);
        assert!(short.to_string().contains("1 bytes early"), "{short}");
        let fails = |_| Err::<&[u8], _>(io::Error::other("no"));
        let fails = Parts::new(b"", &[(0, 3)], fails).read_to_end(&mut out);
        assert_eq!(fails.expect_err("it fails").to_string(), "no");
    }
}
