// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many small pieces of a file into a buffer at once: rows of an embedding table, pages of an
//! index, entries of a cache.
//!
//! ```no_run
//! # fn main() -> Result<(), dmabuf_dio::Error> {
//! use dmabuf_dio::Buffer;
//! use dmabuf_dio::gather::{Gatherer, Piece};
//!
//! let buf = Buffer::alloc(64 << 20)?;
//! let mut gathering = Gatherer::new("embeddings.bin").polled(true).open(&buf)?;
//! let rows = [811_008, 4096, 90_112];
//! let pieces: Vec<_> = (0..)
//!     .zip(rows)
//!     .map(|(place, row)| Piece { offset: row, buf_offset: place * 4096, len: 4096 })
//!     .collect();
//! let gathered = gathering.read(&pieces)?;
//! for (row, piece) in rows.iter().zip(gathered.pieces()) {
//!     match piece {
//!         Ok(found) => println!("row {row}: {} bytes at {}", found.len, found.start),
//!         Err(error) => println!("row {row}: {error}"),
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! [`Gatherer`] holds the settings. A [`Gathering`] is set up once and used for many calls: ring,
//! file and the buffer's pages stay registered. A call submits its requests in batches. Pieces
//! that are adjacent both in the file and in the buffer share a request. A piece that fails does
//! not affect the others.
//!
//! # Alignment
//!
//! Direct I/O moves whole blocks. A piece is read to its place if it starts and ends at multiples
//! of the file's block size, and starts in the buffer at a multiple of the device's memory
//! alignment. For any other piece, the enclosing blocks are read to the *spare* bytes of the
//! buffer ([`Gatherer::spare`]), block after block, and only once if several pieces share them.
//! [`Found::start`] says where the piece begins: nothing is copied. Bytes that are neither a place
//! nor spare do not change. Without direct I/O no alignment is needed, and every piece is read to
//! its place.

mod aside;
mod check;
mod gatherer;
mod gathering;
mod one;
mod outcome;
mod piece;
mod plan;
#[cfg(any(test, fuzzed))]
pub(crate) mod properties;
mod result;
mod ring;

pub use gatherer::Gatherer;
pub use gathering::Gathering;
pub use piece::{Found, Piece, PieceError};
pub use result::{GatherReport, Gathered};
