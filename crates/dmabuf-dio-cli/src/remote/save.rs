// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio save URL`.

use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

use dmabuf_dio::Buffer;
use dmabuf_dio_remote::{Settings, Upload};
use dmabuf_dio_terminal::exit::Failure;
use dmabuf_dio_terminal::progress::Bar;
use dmabuf_dio_terminal::signals;
use serde::Serialize;

use super::output::Output;
use crate::args::url::shown;
use crate::show::{exact, json, speed};

/// The output of `--json`: nothing of a report but what an upload has.
#[derive(Debug, Serialize)]
struct Saved {
    schema: u32,
    file: String,
    buf_offset: u64,
    buffer_length: u64,
    operation: &'static str,
    bytes: u64,
    seconds: f64,
}

/// Saves `length` bytes at `offset` of a buffer to the object.
pub(crate) fn run(
    path: &Path,
    output: Output,
    buf: &Buffer,
    offset: u64,
    length: u64,
) -> Result<(), Failure> {
    let name = shown(path).display().to_string();
    let bar = Bar::new("saving");
    let start = Instant::now();
    let mut upload =
        Upload::new(&path.to_string_lossy(), &Settings::default())?.cancel(signals::token());
    if output != Output::Nothing {
        let bar = bar.clone();
        upload = upload.progress(move |done, total| bar.update(done, total));
    }
    let saved = upload.save(buf, offset..offset.saturating_add(length));
    bar.finish();
    saved?;
    if output == Output::Nothing {
        return Ok(());
    }
    let seconds = start.elapsed().as_secs_f64();
    let text = if output == Output::Json {
        json(&Saved {
            schema: 1,
            file: name,
            buf_offset: offset,
            buffer_length: buf.len(),
            operation: "save",
            bytes: length,
            seconds,
        })?
    } else {
        let (bytes, kind) = (exact(length), buf.kind());
        format!("{name}: {bytes} from a {kind}\n{}\n", speed(seconds, length))
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}
