// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares a loaded buffer with its file, reread through the page cache.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use dmabuf_dio::Buffer;
use dmabuf_dio::content::{self, Content};
use dmabuf_dio_terminal::exit::{DIFFERENT, FAILED, Failure};
use dmabuf_dio_terminal::progress::Bar;
use dmabuf_dio_terminal::signals;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::args::files::LoadArgs;
use crate::args::url::{is_url, shown};
use crate::remote;
use crate::show::{Lines, hex};

const PIECE: usize = 1 << 20;

/// Bytes of an object that are fetched at a time: several ranges, and a multiple of the piece.
const FETCHED: u64 = 64 << 20;

/// What is read again.
enum Again {
    File(File),
    /// An object, a part of it, and how much of that was compared.
    Content(Arc<dyn Content>, Vec<u8>, usize),
}

/// The result of a comparison.
#[derive(Debug, Serialize)]
pub(crate) struct Verified {
    /// Whether all bytes are equal.
    pub(crate) identical: bool,
    /// Offset of the first difference in the file.
    pub(crate) first_difference: Option<u64>,
    /// SHA-256 of the buffer's content.
    pub(crate) buffer_sha256: String,
    /// SHA-256 of the file's range.
    pub(crate) file_sha256: String,
}

impl Verified {
    pub(super) fn word(&self) -> &'static str {
        if self.identical { "identical" } else { "DIFFERENT" }
    }

    pub(super) fn lines(&self, lines: &mut Lines) {
        lines.line("verified", self.word());
        lines.line("", format!("{}  buffer (SHA-256)", self.buffer_sha256));
        lines.line("", format!("{}  file", self.file_sha256));
    }
}

/// Compares the content of a buffer with the bytes of a file from `offset`.
pub(crate) fn verify(path: &Path, args: &LoadArgs, buf: &Buffer) -> Result<Verified, Failure> {
    let (offset, data_offset, len) = (args.offset, buf.data_offset(), buf.data_len());
    let fail = |error: &std::io::Error| {
        Failure::new(
            FAILED,
            format!("{}: cannot reread it to verify: {error}", shown(path).display()),
            "do not change the file while it is verified",
        )
    };
    let mut again = if is_url(path) {
        Again::Content(remote::open(path, &args.remote.without_sums())?, Vec::new(), 0)
    } else {
        Again::File(File::open(path).map_err(|error| fail(&error))?)
    };
    let view = buf.map()?;
    let bar = Bar::new("verifying");
    let (mut ours, mut theirs) = (vec![0; PIECE], vec![0; PIECE]);
    let (mut our_hash, mut their_hash) = (Sha256::new(), Sha256::new());
    let mut first_difference = None;
    let mut at = 0;
    while at < len {
        let piece = (PIECE as u64).min(len - at) as usize;
        let (ours, theirs) = (&mut ours[..piece], &mut theirs[..piece]);
        view.read_at(data_offset + at, ours)?;
        match &mut again {
            Again::File(file) => {
                file.read_exact_at(theirs, offset + at).map_err(|error| fail(&error))?;
            }
            Again::Content(content, bytes, used) => {
                if *used == bytes.len() {
                    let some = FETCHED.min(len - at);
                    *bytes = content::read(content.as_ref(), offset + at, some, &signals::token())?;
                    *used = 0;
                }
                theirs.copy_from_slice(&bytes[*used..*used + piece]);
                *used += piece;
            }
        }
        if first_difference.is_none() && ours != theirs {
            let index = ours.iter().zip(theirs.iter()).position(|(a, b)| a != b);
            first_difference = index.map(|index| offset + at + index as u64);
        }
        our_hash.update(ours);
        their_hash.update(theirs);
        at += piece as u64;
        bar.update(at, len);
    }
    view.finish()?;
    bar.finish();
    Ok(Verified {
        identical: first_difference.is_none(),
        first_difference,
        buffer_sha256: hex(&our_hash.finalize()),
        file_sha256: hex(&their_hash.finalize()),
    })
}

/// Fails if a verification has found a difference.
pub(crate) fn check_identical(path: &Path, verified: Option<&Verified>) -> Result<(), Failure> {
    match verified.and_then(|verified| verified.first_difference) {
        None => Ok(()),
        Some(different) => Err(Failure::new(
            DIFFERENT,
            format!(
                "{}: the buffer differs from the file at byte {different}",
                shown(path).display()
            ),
            "load again while nothing writes the file; if they still differ, report it with the output of dmabuf-dio doctor",
        )),
    }
}
