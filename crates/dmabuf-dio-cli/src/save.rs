// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio save`.

use std::io::Write as _;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use dmabuf_dio::{Buffer, Error, Report, Saver};
use dmabuf_dio_terminal::exit::{Failure, USAGE};
use dmabuf_dio_terminal::progress::Bar;
use dmabuf_dio_terminal::signals;
use serde::Serialize;

use crate::args::files::SaveArgs;
use crate::args::url::{is_url, shown};
use crate::remote;
use crate::show::{Lines, REPORT, exact, json, name_of, summary};

/// The output of `--json`.
#[derive(Debug, Serialize)]
struct SaveOutput<'a> {
    schema: u32,
    file: String,
    buf_offset: u64,
    buffer_length: u64,
    #[serde(flatten)]
    report: &'a Report,
}

/// The part of the buffer to save.
#[derive(Clone, Copy, Debug)]
struct Part {
    offset: u64,
    length: u64,
}

pub(crate) fn run(args: &SaveArgs) -> Result<(), Failure> {
    let buf = buffer(args)?;
    let part = part(args, &buf.range());
    let end = part.offset.checked_add(part.length).ok_or_else(|| {
        Failure::new(USAGE, "offset and length exceed 64 bits", "choose a smaller --length")
    })?;
    let bar = Bar::new("saving");
    let shows = (!args.common.quiet).then_some(&bar);
    let (options, range) = (args.common.options(args.backend), part.offset..end);
    let result = if is_url(&args.file) {
        remote::save(&args.file, options, shows, &buf, range)
    } else {
        let saver = Saver::new(&args.file).options(options).cancel(signals::token());
        let saver = if shows.is_some() { saver.progress(bar.callback()) } else { saver };
        saver.save(&buf, range).map_err(Failure::from)
    };
    bar.finish();
    print(args, &buf, part, &result?)
}

/// The buffer. Its content is the range that `dmabuf-dio load` passes on, or the whole buffer with
/// `--fd`.
fn buffer(args: &SaveArgs) -> Result<Buffer, Failure> {
    let Some(number) = args.fd else {
        return Buffer::from_env().map_err(|error| match error {
            Error::Environment { .. } | Error::Buffer { .. } => Failure::new(
                USAGE,
                format!("no buffer to save: {error}"),
                "run it as COMMAND of dmabuf-dio load, or pass the buffer: --fd NUMBER",
            ),
            error => error.into(),
        });
    };
    let bad = |errno: rustix::io::Errno| {
        Failure::new(
            USAGE,
            format!("fd {number} cannot be used: {errno}"),
            "pass a descriptor that this process inherits: --fd NUMBER",
        )
    };
    if number < 0 {
        return Err(bad(rustix::io::Errno::BADF));
    }
    // SAFETY: nothing in this process closes the descriptor. If the number is not open, the next
    // call fails.
    let inherited = unsafe { BorrowedFd::borrow_raw(number) };
    let fd = rustix::io::fcntl_dupfd_cloexec(inherited, 3).map_err(bad)?;
    Ok(Buffer::from_fd(fd)?)
}

/// The range to save.
fn part(args: &SaveArgs, default: &Range<u64>) -> Part {
    let offset = args.buf_offset.unwrap_or(default.start);
    Part { offset, length: args.length.unwrap_or(default.end.saturating_sub(offset)) }
}

fn print(args: &SaveArgs, buf: &Buffer, part: Part, report: &Report) -> Result<(), Failure> {
    if args.common.quiet {
        return Ok(());
    }
    // A URL without its secrets.
    let file = shown(&args.file).display().to_string();
    let text = if args.common.json {
        let output = SaveOutput {
            schema: 1,
            file,
            buf_offset: part.offset,
            buffer_length: buf.len(),
            report,
        };
        json(&output)?
    } else if !args.common.verbose {
        let what = format!("{file}: {} from a {}", exact(report.bytes), buf.kind());
        summary(&format!("{what} (backend {})", name_of(report)), report)
    } else {
        let mut lines = Lines::new(REPORT);
        lines.line("file", file);
        lines.line("buffer", format!("{}, {}", buf.kind(), exact(buf.len())));
        lines.report(report);
        lines.into_text()
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}
