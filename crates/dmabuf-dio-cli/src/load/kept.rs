// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio load keep:NAME`: what is kept is in memory already.
//!
//! A command with `{}` gets a link to it, in a private folder, with the name that its source has: programs look
//! at extensions. A command without `{}` inherits the kept file's descriptor, and anything that needs memory of its
//! own, such as a dma-buf, is loaded from it.

use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use dmabuf_dio::Kind;
use dmabuf_dio_keep::Found;
use dmabuf_dio_terminal::exit::{FAILED, Failure, USAGE};
use rustix::io::FdFlags;
use serde::Serialize;

use super::folder::{Folder, MARK};
use super::inherited::refuse_folder;
use super::template::{arguments, wants_path};
use super::{child, program};
use crate::args::files::LoadArgs;
use crate::keep::failure::failure;
use crate::show::{exact, json};

/// The output of `--json`.
#[derive(Serialize)]
struct Output {
    schema: u32,
    path: String,
    kept: String,
    bytes: u64,
}

/// What the path names, if something kept.
pub(crate) fn find(args: &LoadArgs) -> Result<Option<Found>, Failure> {
    dmabuf_dio_keep::find(&args.file).map_err(failure)
}

/// Whether the kept memory itself is what was asked for, and no memory of one's own.
pub(crate) fn is_enough(args: &LoadArgs) -> bool {
    wants_path(&args.command)
        || (matches!(args.kind, Kind::Any | Kind::Memfd | Kind::File)
            && args.options().backend.is_none()
            && args.numa.is_none()
            && !(args.lock || args.verify || args.command.is_empty()))
}

/// Runs the command with what is kept. Returns its exit code.
pub(crate) fn run(args: &LoadArgs, found: &Found) -> Result<u8, Failure> {
    if wants_path(&args.command) { by_path(args, found) } else { inherited(args, found) }
}

fn by_path(args: &LoadArgs, found: &Found) -> Result<u8, Failure> {
    let refuse = |what: &str, hint: &str| {
        Err(Failure::new(USAGE, format!("{}: {what}", args.file.display()), hint))
    };
    if args.offset > 0 || args.length.is_some() || !matches!(args.kind, Kind::Any | Kind::File) {
        return refuse(
            "what is kept is opened as it is: whole, and as a file",
            "leave out --offset, --length and --kind, or {} in COMMAND",
        );
    }
    if args.verify {
        return refuse(
            "nothing is loaded that could be compared",
            "compare it with its source: cmp",
        );
    }
    let folder = Folder::create()?;
    let name = if found.name == Path::new(MARK) { Path::new("files") } else { &found.name };
    folder.link(&found.path, name)?;
    let path = folder.path().join(name);
    print(args, found, &path)?;
    let (program, rest) = args.command.split_first().unwrap_or_else(|| unreachable!("has a place"));
    let mut command = Command::new(program);
    command.args(arguments(rest, Some(&path)));
    for variable in ["DMABUF_DIO_FD", "DMABUF_DIO_OFFSET", "DMABUF_DIO_LEN", "DMABUF_DIO_FILES"] {
        command.env_remove(variable);
    }
    folder.outlive().map_err(|errno| {
        let what = format!("cannot pass on the folder of the link: {errno}");
        Failure::new(FAILED, what, "allow the system call fcntl")
    })?;
    child::run(&mut command)
}

fn inherited(args: &LoadArgs, found: &Found) -> Result<u8, Failure> {
    refuse_folder(&found.path)?;
    let Some(buffer) = dmabuf_dio_keep::open(&args.file).map_err(failure)? else {
        unreachable!("it was found")
    };
    buffer.check_range(args.offset, args.length.unwrap_or(0))?;
    let length = args.length.unwrap_or(buffer.len() - args.offset);
    let fd = buffer.fd()?;
    rustix::io::fcntl_setfd(fd, FdFlags::empty()).map_err(|errno| {
        Failure::new(FAILED, format!("cannot pass on the buffer: {errno}"), "see dmesg")
    })?;
    print(args, found, &found.path)?;
    let (program, rest) = args.command.split_first().unwrap_or_else(|| unreachable!("checked"));
    let mut command = Command::new(program);
    command
        .args(arguments(rest, None))
        .env("DMABUF_DIO_FD", fd.as_raw_fd().to_string())
        .env("DMABUF_DIO_OFFSET", args.offset.to_string())
        .env("DMABUF_DIO_LEN", length.to_string());
    let error = command.exec();
    Err(program::cannot_run(&command, &error))
}

/// Prints to standard error: standard output belongs to the command.
fn print(args: &LoadArgs, found: &Found, path: &Path) -> Result<(), Failure> {
    if args.common.quiet {
        return Ok(());
    }
    let bytes =
        std::fs::metadata(&found.path).map_or(0, |stat| if stat.is_dir() { 0 } else { stat.len() });
    let (path, kept) = (path.display().to_string(), found.path.display().to_string());
    let text = if args.common.json {
        json(&Output { schema: 1, path, kept, bytes })?
    } else {
        let what =
            if bytes > 0 { format!("{} in memory", exact(bytes)) } else { "in memory".into() };
        format!("{}: {what}, nothing was loaded\npath: {path}\n", args.file.display())
    };
    Ok(std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes())?)
}
