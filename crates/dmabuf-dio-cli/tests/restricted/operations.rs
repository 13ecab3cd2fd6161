// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tested operations. Each runs in a process of its own, which prints its result.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;

use dmabuf_dio::gather::{Gatherer, Piece};
use dmabuf_dio::{Buffer, Error, Kind, Loader};

use crate::filter;

/// The operations of the library.
pub(crate) const ALL: [&str; 4] = ["load", "view", "gather", "by path"];

/// Less than the file: several requests need a ring.
const BLOCK: u64 = 256 << 10;

/// Rows of the file that are gathered, and their length.
const ROWS: [u64; 4] = [3, 0, 700, 41];
const ROW: u64 = 600;

/// Begins the line that says how it ended.
pub(crate) const RESULT: &str = "\u{1}result: ";

/// A thread without a filter compares this memory with the file.
enum Found {
    Bytes(Vec<u8>),
    /// A buffer, and the places of its ranges.
    Buffer(Buffer, Vec<(u64, u64, u64)>),
    /// A path, and the object that keeps it.
    Path(PathBuf, #[allow(dead_code, reason = "it is kept")] Box<Buffer>),
}

/// Runs the operation that the environment names.
pub(crate) fn run() {
    let Ok(operation) = std::env::var("RESTRICTED") else { return };
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let path = PathBuf::from(std::env::var_os("RESTRICTED_FILE").expect("a file"));
    let wanted = std::fs::read(&path).expect("the file");
    let (send, receive) = mpsc::channel();
    let check = thread::spawn(move || receive.recv().map(|found| is_right(&found, &wanted)));
    let only = std::env::var_os("RESTRICTED_ONLY").is_some();
    let block = number("RESTRICTED_CALL").zip(number("RESTRICTED_ERRNO"));
    let outcome = thread::spawn(move || {
        if only {
            filter::only(&[filter::NEEDED, filter::OURS].concat()).expect("a filter");
        }
        if let Some((call, errno)) = block {
            filter::block(call, errno as i32).expect("a filter");
        }
        let outcome = operate(&operation, &path);
        outcome.map(|(found, backend)| {
            send.send(found).expect("a thread that compares");
            backend
        })
    });
    match outcome.join().expect("no panic") {
        Ok(backend) => {
            let right = check.join().expect("no panic");
            let said = if right == Ok(true) { &backend } else { "wrong bytes" };
            println!("\n{RESULT}{said}");
        }
        Err(error) => println!("\n{RESULT}failed\t{error}\t{}", error.hint()),
    }
}

fn operate(operation: &str, path: &Path) -> Result<(Found, String), Error> {
    if operation == "gather" {
        return gather(path);
    }
    let loader = Loader::new(path).block_size(BLOCK);
    let loader = if operation == "by path" { loader.kind(Kind::File) } else { loader };
    let loaded = loader.load()?;
    let backend = loaded.report().and_then(|report| report.backend);
    let backend = backend.map_or("none", |backend| backend.name()).to_owned();
    if let ("by path", Some(path)) = (operation, loaded.path()) {
        return Ok((Found::Path(path, Box::new(loaded)), backend));
    }
    if operation == "view" {
        let bytes = loaded.map()?.to_vec()?;
        let range = loaded.range();
        return Ok((
            Found::Bytes(bytes[range.start as usize..range.end as usize].to_vec()),
            backend,
        ));
    }
    let place = (0, loaded.data_offset(), loaded.data_len());
    Ok((Found::Buffer(loaded, vec![place]), backend))
}

fn gather(path: &Path) -> Result<(Found, String), Error> {
    let pieces: Vec<_> = (0..)
        .zip(ROWS)
        .map(|(place, row)| Piece { offset: row * ROW, buf_offset: place * ROW, len: ROW })
        .collect();
    let places = (ROWS.len() as u64 * ROW).next_multiple_of(1 << 16);
    let gatherer = Gatherer::new(path);
    let spare = places..places + gatherer.room(&pieces)?;
    let buf = Buffer::alloc(spare.end)?;
    let mut gathering = gatherer.spare(spare).open(&buf)?;
    let gathered = gathering.read(&pieces)?;
    let found = gathered.pieces().zip(ROWS).map(|(piece, row)| {
        let piece = piece.expect("a whole piece");
        (row * ROW, piece.start, piece.len)
    });
    let (found, backend) = (found.collect(), gathering.backend().name().to_owned());
    Ok((Found::Buffer(buf, found), backend))
}

fn is_right(found: &Found, wanted: &[u8]) -> bool {
    match found {
        Found::Bytes(bytes) => bytes == wanted,
        Found::Buffer(buf, places) => {
            let view = buf.map().expect("a view");
            places.iter().all(|(offset, at, len)| {
                let mut bytes = vec![0; *len as usize];
                view.read_at(*at, &mut bytes).expect("its bytes");
                bytes == wanted[*offset as usize..][..bytes.len()]
            })
        }
        Found::Path(path, _) => std::fs::read(path).is_ok_and(|bytes| bytes == wanted),
    }
}
