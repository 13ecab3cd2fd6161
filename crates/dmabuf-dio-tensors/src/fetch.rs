// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the header, or all, of a content: a request costs as much as hundreds of KiB.

use std::io::{self, Read};

use dmabuf_dio::CancelToken;
use dmabuf_dio::content::{self, Content};

use crate::error::{Error, Result};
use crate::header::{self, Header, HeaderError};
use crate::malformed::Malformed;
use crate::open::malformed;

/// Bytes of the first request: most headers of safetensors are shorter.
const FIRST: u64 = 256 << 10;
/// Bytes of the next ones. The words of a model, in a header of GGUF, have several MiB.
const MORE: u64 = 8 << 20;
/// Bytes before a header of safetensors, which say how long it is.
const PREFIX: usize = 8;

/// Reads the header of a content.
pub(crate) fn header(content: &dyn Content, cancel: &CancelToken) -> Result<Header> {
    let len = content.length();
    let mut start = Start::new(content, cancel);
    let header = header::parse(&mut start, len);
    let failed = start.failed.take();
    let path = content.name();
    header.map_err(|error| match (error, failed) {
        (_, Some(source)) => Error::Load { path: path.to_owned(), source },
        (HeaderError::Malformed(reason), None) => malformed(path, reason),
        (HeaderError::Read(source), None) => Error::Read { path: path.to_owned(), source },
    })
}

/// Reads a content of at most `limit` bytes.
pub(crate) fn read(content: &dyn Content, limit: u64, cancel: &CancelToken) -> Result<Vec<u8>> {
    let (path, len) = (content.name(), content.length());
    if len > limit {
        let what = "an index of bytes:";
        return Err(malformed(path, Malformed::TooLarge { what, value: len, limit }));
    }
    let failed = |source| Error::Load { path: path.to_owned(), source };
    content::read(content, 0, len, cancel).map_err(failed)
}

/// Reads a content from its start, in as few requests as its header needs.
struct Start<'c> {
    content: &'c dyn Content,
    cancel: &'c CancelToken,
    /// Bytes that were fetched and not read yet.
    chunk: io::Cursor<Vec<u8>>,
    /// Where the next request begins.
    at: u64,
    /// Where the header ends, or else the content.
    end: u64,
    failed: Option<dmabuf_dio::Error>,
}

impl<'c> Start<'c> {
    fn new(content: &'c dyn Content, cancel: &'c CancelToken) -> Self {
        let (chunk, end) = (io::Cursor::default(), content.length());
        Self { content, cancel, chunk, at: 0, end, failed: None }
    }

    fn fetch(&mut self) -> Result<(), dmabuf_dio::Error> {
        let most = if self.at == 0 { FIRST } else { MORE };
        let len = self.end.saturating_sub(self.at).min(most);
        let bytes = content::read(self.content, self.at, len, self.cancel)?;
        if self.at == 0 {
            self.end = header_end(&bytes).map_or(self.end, |end| end.min(self.end));
        }
        self.at += len;
        self.chunk = io::Cursor::new(bytes);
        Ok(())
    }
}

/// Where a header of safetensors ends.
fn header_end(start: &[u8]) -> Option<u64> {
    let prefix = start.first_chunk::<PREFIX>().filter(|prefix| !prefix.starts_with(b"GGUF"))?;
    u64::from_le_bytes(*prefix).checked_add(PREFIX as u64)
}

impl Read for Start<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.chunk.read(out)?;
        if read > 0 || out.is_empty() || self.at >= self.end {
            return Ok(read);
        }
        if let Err(error) = self.fetch() {
            let text = error.to_string();
            self.failed = Some(error);
            return Err(io::Error::other(text));
        }
        self.chunk.read(out)
    }
}
