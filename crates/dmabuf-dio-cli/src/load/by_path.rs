// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio load PATH -- COMMAND {}`: files in memory that a command opens by path.
//!
//! The files are memfds of this process. The command opens them through a private folder of links
//! to `/proc/PID/fd/N`, which also works in its worker processes, and after it has closed the
//! descriptors that it inherited. Therefore this process runs until the command ends.

use std::io::Write as _;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use dmabuf_dio::{Buffer, Kind};
use dmabuf_dio_terminal::exit::{FAILED, Failure, USAGE};
use dmabuf_dio_terminal::signals;
use rustix::fs::{MemfdFlags, Mode, Timespec, Timestamps};
use rustix::io::FdFlags;
use serde::Serialize;

use super::folder::Folder;
use super::loader::report_of;
use super::many::{self, Ready};
use super::plan::{self, Load, Plan};
use super::template::arguments;
use super::verify::{check_identical, verify};
use super::{child, report};
use crate::args::files::LoadArgs;
use crate::args::url::{is_prefix, shown};
use crate::show::hex;

/// Loads a file or a folder and runs the command. Returns its exit code.
pub(crate) fn run(args: &LoadArgs) -> Result<u8, Failure> {
    // Its handlers precede all threads.
    signals::token();
    check_dumpable()?;
    if !matches!(args.kind, Kind::Any | Kind::File) {
        let what = format!("a {} has no path for COMMAND", args.kind);
        return Err(Failure::new(USAGE, what, "leave --kind out, or {} in COMMAND"));
    }
    let is_range = args.offset > 0 || args.length.is_some();
    let plan = if is_prefix(&args.file) {
        plan::of_prefix(&args.file, args, is_range)?
    } else {
        plan::plan(&args.file, args.min_size.unwrap_or(plan::MIN_SIZE), is_range)?
    };
    let (files, cost) = many::load(&plan, args)?;
    let ready = plan.loads.iter().zip(files).map(|(load, file)| {
        look_alike(load, &file);
        let verify = || verify(load.source(), args, &file);
        let verified = args.verify.then(verify).transpose()?;
        let report = report_of(&file)?.clone();
        Ok(Ready { load, file, report, verified })
    });
    let ready: Vec<Ready<'_>> = ready.collect::<Result<_, Failure>>()?;
    let folder = Folder::create()?;
    let path = fill(&folder, &plan, &ready)?;
    report::print(args, &plan, &path, &ready, &cost)?;
    for one in &ready {
        check_identical(one.load.source(), one.verified.as_ref())?;
    }
    let (program, rest) = args.command.split_first().unwrap_or_else(|| unreachable!("has a place"));
    let mut command = Command::new(program);
    command.args(arguments(rest, Some(&path)));
    let _list = hand_over(&mut command, &folder, &ready)?;
    child::run(&mut command)
}

/// Other processes of this user may open the files only if this process is dumpable: ptrace(2),
/// "ptrace access mode checking". A process is not dumpable if its program has capabilities or
/// cannot be read.
fn check_dumpable() -> Result<(), Failure> {
    // SAFETY: the call takes numbers only.
    let dumpable = unsafe { libc::prctl(libc::PR_GET_DUMPABLE, 0_u64, 0_u64, 0_u64, 0_u64) };
    if dumpable == 1 || rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(Failure::new(
        FAILED,
        "COMMAND could not open files of this process, which is not dumpable",
        "make the program dmabuf-dio readable, and remove its capabilities: setcap -r",
    ))
}

/// Gives a memfd the permissions of its file, without write permission, and its time, by which
/// programs recognise cached results.
fn look_alike(load: &Load, file: &Buffer) {
    let Ok(stat) = std::fs::metadata(load.source()) else {
        // An object has neither.
        let _ = file.fd().map(|fd| rustix::fs::fchmod(fd, Mode::from_bits_truncate(0o444)));
        return;
    };
    let time = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
    let times = Timestamps {
        last_access: time(stat.atime(), stat.atime_nsec()),
        last_modification: time(stat.mtime(), stat.mtime_nsec()),
    };
    let Ok(fd) = file.fd() else { return };
    let _ = rustix::fs::futimens(fd, &times);
    let mode = Mode::from_bits_truncate(stat.mode() & 0o444 | 0o400);
    let _ = rustix::fs::fchmod(fd, mode);
}

/// Fills the private folder, and returns the path for the command.
fn fill(folder: &Folder, plan: &Plan, ready: &[Ready<'_>]) -> Result<PathBuf, Failure> {
    for place in &plan.folders {
        folder.folder(place)?;
    }
    for link in &plan.links {
        folder.link(&link.target, &link.place)?;
    }
    for one in ready {
        for name in &one.load.names {
            folder.link(&one.file.path().unwrap_or_default(), &name.place)?;
        }
    }
    Ok(folder.path().join(&plan.name))
}

/// The descriptor that a command inherits: the dma-buf's if there is one, else the memfd's.
fn inherited<'a>(ready: &'a Ready<'_>) -> Result<(BorrowedFd<'a>, Kind), Failure> {
    match ready.file.dma_buf() {
        Ok(buf) => Ok((buf.as_fd(), Kind::DmaBuf)),
        Err(_) => Ok((ready.file.fd()?, Kind::Memfd)),
    }
}

/// The file that `DMABUF_DIO_FILES` names.
#[derive(Serialize)]
struct List {
    schema: u32,
    files: Vec<Entry>,
}

/// A name of a loaded file. Names that are not UTF-8 are also in hexadecimal.
#[derive(Serialize)]
struct Entry {
    file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file_hex: Option<String>,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    length: u64,
    fd: i32,
    buffer: dmabuf_dio::Kind,
}

/// Lets the command inherit the buffers, and tells it their numbers. The result must be held until
/// the command ends.
fn hand_over(
    command: &mut Command,
    folder: &Folder,
    ready: &[Ready<'_>],
) -> Result<Buffer, Failure> {
    let failed = |what: String| {
        Failure::new(
            FAILED,
            format!("cannot pass on the buffers: {what}"),
            "allow the system calls fcntl and memfd_create, for example in the seccomp profile of the container",
        )
    };
    let mut files = Vec::new();
    for one in ready {
        let (fd, kind) = inherited(one)?;
        rustix::io::fcntl_setfd(fd, FdFlags::empty()).map_err(|errno| failed(errno.to_string()))?;
        for name in &one.load.names {
            let path = folder.path().join(&name.place);
            files.push(Entry {
                file: shown(&name.source).display().to_string(),
                file_hex: odd(&name.source),
                path: path.display().to_string(),
                path_hex: odd(&path),
                length: one.file.len(),
                fd: fd.as_raw_fd(),
                buffer: kind,
            });
        }
    }
    for name in ["DMABUF_DIO_FD", "DMABUF_DIO_OFFSET", "DMABUF_DIO_LEN"] {
        command.env_remove(name);
    }
    if let ([one, ..], [_]) = (&files[..], ready) {
        command
            .env("DMABUF_DIO_FD", one.fd.to_string())
            .env("DMABUF_DIO_OFFSET", "0")
            .env("DMABUF_DIO_LEN", one.length.to_string());
    }
    folder.outlive().map_err(|errno| failed(errno.to_string()))?;
    let list = serde_json::to_vec_pretty(&List { schema: 1, files });
    let list = list.map_err(|error| failed(error.to_string()))?;
    let list = in_memory(&list).map_err(|error| failed(error.to_string()))?;
    command.env("DMABUF_DIO_FILES", list.path().unwrap_or_default());
    Ok(list)
}

/// A memfd with these bytes.
fn in_memory(bytes: &[u8]) -> std::io::Result<Buffer> {
    let fd = rustix::fs::memfd_create("dmabuf-dio-files", MemfdFlags::CLOEXEC)?;
    let mut file = std::fs::File::from(fd);
    file.write_all(bytes)?;
    Ok(Buffer::from_fd(file.into())?)
}

/// The bytes of a path that is not text.
fn odd(path: &Path) -> Option<String> {
    path.to_str().is_none().then(|| hex(path.as_os_str().as_bytes()))
}
