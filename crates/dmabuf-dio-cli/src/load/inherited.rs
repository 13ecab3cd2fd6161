// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads into a buffer whose descriptor the command inherits.

use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use dmabuf_dio::{Buffer, Kind, Report};
use dmabuf_dio_terminal::exit::{FAILED, Failure, USAGE};
use dmabuf_dio_terminal::progress::Bar;
use dmabuf_dio_terminal::size::show_size;
use rustix::io::FdFlags;
use serde::Serialize;

use super::loader::{loader, report_of};
use super::template::arguments;
use super::verify::{Verified, check_identical, verify};
use super::{child, program};
use crate::args::files::LoadArgs;
use crate::args::url::{is_prefix, shown};
use crate::show::{Lines, REPORT, exact, json, name_of, summary};

/// The output of `--json`.
#[derive(Debug, Serialize)]
struct LoadOutput<'a> {
    schema: u32,
    file: String,
    offset: u64,
    data_offset: u64,
    buffer_length: u64,
    #[serde(flatten)]
    report: &'a Report,
    verify: Option<&'a Verified>,
}

/// Loads, and becomes the command if there is one. Returns the exit code.
pub(crate) fn run(args: &LoadArgs) -> Result<u8, Failure> {
    refuse_folder(&args.file)?;
    if args.kind == Kind::Private && !args.command.is_empty() {
        let what = "COMMAND cannot use private memory, which has no descriptor";
        return Err(Failure::new(USAGE, what, "choose another kind: --kind memfd"));
    }
    let loaded = load(args)?;
    let verify = || verify(&args.file, args, &loaded);
    let verified = args.verify.then(verify).transpose()?;
    print(args, &loaded, verified.as_ref())?;
    check_identical(&args.file, verified.as_ref())?;
    match args.command.split_first() {
        None => Ok(0),
        Some((program, rest)) => {
            let mut command = Command::new(program);
            command.args(arguments(rest, None));
            hand_over(&mut command, &loaded)?;
            // The lock of a memfd ends with this process, as does that process if it becomes the command.
            if args.lock && matches!(loaded.kind(), Kind::Memfd | Kind::File) {
                return child::run(&mut command);
            }
            let error = command.exec();
            Err(program::cannot_run(&command, &error))
        }
    }
}

/// A folder has no descriptor to pass on.
pub(super) fn refuse_folder(path: &Path) -> Result<(), Failure> {
    if !path.is_dir() && !is_prefix(path) {
        return Ok(());
    }
    Err(Failure::new(
        FAILED,
        format!(
            "{}: a folder can only be loaded for a command that opens it by path",
            shown(path).display()
        ),
        "add the command, and {} where it takes the path: -- COMMAND {}",
    ))
}

fn load(args: &LoadArgs) -> Result<Buffer, Failure> {
    let bar = Bar::new("loading");
    let mut loader = loader(&args.file, args)?;
    if !args.common.quiet {
        loader = loader.progress(bar.callback());
    }
    let result = loader.load();
    bar.finish();
    Ok(result?)
}

fn print(args: &LoadArgs, loaded: &Buffer, verified: Option<&Verified>) -> Result<(), Failure> {
    if args.common.quiet {
        return Ok(());
    }
    let text = if args.common.json {
        let output = LoadOutput {
            schema: 1,
            file: shown(&args.file).display().to_string(),
            offset: args.offset,
            data_offset: loaded.data_offset(),
            buffer_length: loaded.len(),
            report: report_of(loaded)?,
            verify: verified,
        };
        json(&output)?
    } else {
        human(args, loaded, report_of(loaded)?, verified)
    };
    // Standard output belongs to the command, if there is one.
    if args.command.is_empty() {
        std::io::stdout().write_all(text.as_bytes())?;
    } else {
        std::io::stderr().write_all(text.as_bytes())?;
    }
    Ok(())
}

fn human(args: &LoadArgs, loaded: &Buffer, report: &Report, verified: Option<&Verified>) -> String {
    let at = if args.offset > 0 { format!(", from byte {}", args.offset) } else { String::new() };
    let file = format!("{}{at}", shown(&args.file).display());
    if !args.common.verbose {
        return brief(&file, loaded, report, verified);
    }
    let mut lines = Lines::new(REPORT);
    lines.line("file", file);
    let mut buffer = format!("{}, {}", loaded.kind(), exact(loaded.len()));
    if let (Some(page), Some(huge)) = (report.page_size, report.huge_bytes) {
        buffer += &format!(", pages of {}", show_size(page));
        if huge > 0 && huge < loaded.len() {
            buffer += &format!(" for {}", show_size(huge));
        }
    }
    if let Some(segments) = report.segments {
        buffer += &format!(", {segments} segments");
    }
    if loaded.data_offset() > 0 {
        buffer += &format!(", content at byte {}", loaded.data_offset());
    }
    lines.line("buffer", buffer);
    lines.report(report);
    if let Some(verified) = verified {
        verified.lines(&mut lines);
    }
    lines.into_text()
}

fn brief(file: &str, loaded: &Buffer, report: &Report, verified: Option<&Verified>) -> String {
    let buffer = match loaded.kind() {
        Kind::DmaBuf => "a dma-buf",
        Kind::Memfd => "a memfd, which devices cannot import",
        Kind::File if loaded.dma_buf().is_ok() => "a memfd, also as a dma-buf",
        Kind::File => "a memfd, without a dma-buf",
        Kind::Private | Kind::Any => "private memory",
    };
    let what = format!("{file}: {} in {buffer}", exact(loaded.data_len()));
    let mut text = summary(&format!("{what} (backend {})", name_of(report)), report);
    if let Some(verified) = verified {
        text += &format!("verified: {}\n", verified.word());
    }
    text
}

/// Lets the command inherit the buffer.
fn hand_over(command: &mut Command, loaded: &Buffer) -> Result<(), Failure> {
    let fd = loaded.fd()?;
    rustix::io::fcntl_setfd(fd, FdFlags::empty()).map_err(|errno| {
        Failure::new(FAILED, format!("cannot pass on the buffer: {errno}"), "see dmesg")
    })?;
    command
        .env("DMABUF_DIO_FD", fd.as_raw_fd().to_string())
        .env("DMABUF_DIO_OFFSET", loaded.data_offset().to_string())
        .env("DMABUF_DIO_LEN", loaded.data_len().to_string());
    Ok(())
}
