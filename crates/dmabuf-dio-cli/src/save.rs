// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio save`.

use std::os::fd::BorrowedFd;

use std::io::Write as _;

use dmabuf_dio::{DmaBuf, Report, Saver};
use serde::Serialize;

use crate::args::SaveArgs;
use crate::exit::{Failure, USAGE};
use crate::progress::Bar;
use crate::show::{Lines, REPORT, exact, json};
use crate::signals;

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Output<'a> {
    schema: u32,
    file: String,
    buffer_offset: u64,
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
    let part = part(args, &buf)?;
    let bar = Bar::new("saving");
    let mut saver = Saver::new(&args.file)
        .backend(args.backend)
        .direct(!args.common.buffered)
        .cancel(signals::token());
    if let Some(chunk) = args.common.chunk {
        saver = saver.chunk(chunk);
    }
    if let Some(depth) = args.common.depth {
        saver = saver.depth(depth);
    }
    if !args.common.quiet {
        saver = saver.progress(bar.callback());
    }
    let end = part.offset.checked_add(part.length).ok_or_else(|| {
        Failure::new(USAGE, "offset and length exceed 64 bits", "choose a smaller --length")
    })?;
    let result = saver.save(&buf, part.offset..end);
    bar.finish();
    print(args, &buf, part, &result?)
}

/// A descriptor of our own for the inherited buffer.
fn buffer(args: &SaveArgs) -> Result<DmaBuf, Failure> {
    let number = match (args.fd, variable("DMABUF_DIO_FD")?) {
        (Some(fd), _) => fd,
        (None, Some(fd)) => i32::try_from(fd).unwrap_or(-1),
        (None, None) => {
            return Err(Failure::new(
                USAGE,
                "no buffer to save: DMABUF_DIO_FD is not set",
                "run it as COMMAND of dmabuf-dio load, or name the buffer: --fd NUMBER",
            ));
        }
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
    // SAFETY: whether the number is an open descriptor is what the next call finds out; nothing
    // in this process closes it.
    let inherited = unsafe { BorrowedFd::borrow_raw(number) };
    let fd = rustix::io::fcntl_dupfd_cloexec(inherited, 3).map_err(bad)?;
    Ok(DmaBuf::from_fd(fd)?)
}

/// What is asked for; what was not said comes from the environment, but not for another buffer
/// than the one that is meant there.
fn part(args: &SaveArgs, buf: &DmaBuf) -> Result<Part, Failure> {
    let inherited = |name| if args.fd.is_some() { Ok(None) } else { variable(name) };
    let offset = match args.offset {
        Some(offset) => offset,
        None => inherited("DMABUF_DIO_OFFSET")?.unwrap_or(0),
    };
    let length = match args.length {
        Some(length) => length,
        None => inherited("DMABUF_DIO_LEN")?.unwrap_or(buf.len().saturating_sub(offset)),
    };
    Ok(Part { offset, length })
}

/// A number in the environment.
fn variable(name: &str) -> Result<Option<u64>, Failure> {
    let Some(value) = std::env::var_os(name) else { return Ok(None) };
    let number = value.to_str().and_then(|text| text.parse().ok());
    number.map(Some).ok_or_else(|| {
        Failure::new(
            USAGE,
            format!("{name} is no number: {}", value.display()),
            format!("set it as dmabuf-dio load does, or unset it: unset {name}"),
        )
    })
}

fn print(args: &SaveArgs, buf: &DmaBuf, part: Part, report: &Report) -> Result<(), Failure> {
    if args.common.quiet {
        return Ok(());
    }
    let text = if args.common.json {
        let output = Output {
            schema: 1,
            file: args.file.display().to_string(),
            buffer_offset: part.offset,
            buffer_length: buf.len(),
            report,
        };
        json(&output)?
    } else {
        let mut lines = Lines::new(REPORT);
        lines.line("file", args.file.display().to_string());
        lines.line("buffer", format!("{}, {}", buf.kind(), exact(buf.len())));
        lines.report(report);
        lines.into_text()
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}
