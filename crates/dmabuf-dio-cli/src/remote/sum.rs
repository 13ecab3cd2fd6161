// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio sum`.

use std::io::{self, Read, Write as _};
use std::sync::Arc;

use dmabuf_dio::content::{self, Content};
use dmabuf_dio_remote::Sums;
use dmabuf_dio_terminal::exit::{FAILED, Failure, USAGE};
use dmabuf_dio_terminal::signals;

use super::object::open;
use crate::args::remote::{RemoteArgs, SumArgs};
use crate::args::url::{is_url, shown};

/// Bytes of an object that are fetched at a time: several ranges.
const PIECE: u64 = 64 << 20;

pub(crate) fn run(args: &SumArgs) -> Result<(), Failure> {
    if args.chunk_size == 0 {
        return Err(Failure::new(USAGE, "--chunk-size cannot be 0", "leave it out"));
    }
    let name = shown(&args.file);
    let failed = |error: &dyn std::fmt::Display| {
        Failure::new(FAILED, format!("{}: {error}", name.display()), "check the path")
    };
    let sums = if is_url(&args.file) {
        let content = open(&args.file, &RemoteArgs::default())?;
        let mut pieces = Pieces { content, at: 0, piece: Vec::new(), used: 0, error: None };
        let sums = Sums::of(&mut pieces, args.chunk_size);
        if let Some(error) = pieces.error {
            return Err(error.into());
        }
        sums
    } else {
        Sums::of(std::fs::File::open(&args.file).map_err(|error| failed(&error))?, args.chunk_size)
    };
    let sums = sums.map_err(|error| failed(&error))?;
    io::stdout().write_all((sums.to_json() + "\n").as_bytes())?;
    Ok(())
}

/// An object as a reader.
struct Pieces {
    content: Arc<dyn Content>,
    at: u64,
    piece: Vec<u8>,
    /// How much of the piece was read.
    used: usize,
    error: Option<dmabuf_dio::Error>,
}

impl Read for Pieces {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.used == self.piece.len() {
            let length = PIECE.min(self.content.length() - self.at);
            let piece = content::read(self.content.as_ref(), self.at, length, &signals::token());
            self.piece = piece.map_err(|error| {
                self.error = Some(error);
                io::Error::other("the object cannot be read")
            })?;
            (self.at, self.used) = (self.at + length, 0);
        }
        let some = out.len().min(self.piece.len() - self.used);
        out[..some].copy_from_slice(&self.piece[self.used..self.used + some]);
        self.used += some;
        Ok(some)
    }
}
