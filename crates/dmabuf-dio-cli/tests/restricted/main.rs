// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads, views, gathers and loads by path in restricted surroundings: each system call blocked in
//! turn, as container engines do, no /proc, low limits, other users. Each works, or prints two
//! lines: the missing thing, and the remedy. This test finds the table in docs/reach.md:
//! `DMABUF_DIO_RECORD=1` writes it.

#[path = "../common/mod.rs"]
mod common;

mod filter;
mod operations;
mod surroundings;
mod table;

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;

use common::{folder, program};
use surroundings::Surroundings;
use table::{Cell, Row};

/// Some pages and a part of one.
const LENGTH: usize = (1 << 20) + 1234;

/// Processes that run at a time.
const THREADS: usize = 4;

const LOW: &[(libc::__rlimit_resource_t, u64)] =
    &[(libc::RLIMIT_NOFILE, 16), (libc::RLIMIT_MEMLOCK, 0), (libc::RLIMIT_NPROC, 16)];
const FEW_FILES: &[(libc::__rlimit_resource_t, u64)] = &[(libc::RLIMIT_NOFILE, 6)];
const NO_LOCKED: &[(libc::__rlimit_resource_t, u64)] = &[(libc::RLIMIT_MEMLOCK, 0)];
const SHORT_FILES: &[(libc::__rlimit_resource_t, u64)] = &[(libc::RLIMIT_FSIZE, 1 << 19)];
const LITTLE_SPACE: &[(libc::__rlimit_resource_t, u64)] = &[(libc::RLIMIT_AS, 40 << 20)];

/// Restrictions other than blocked calls.
const OTHERS: &[(&str, Surroundings)] = &[
    ("no `/proc`", Surroundings::Folder(c"/proc")),
    ("no `/sys`", Surroundings::Folder(c"/sys")),
    ("no `/dev`", Surroundings::Folder(c"/dev")),
    ("no `/dev/shm`", Surroundings::Folder(c"/dev/shm")),
    ("`/tmp` read-only", Surroundings::Folder(c"/tmp")),
    ("6 open files", Surroundings::Limits(FEW_FILES)),
    ("no locked memory", Surroundings::Limits(NO_LOCKED)),
    ("files of at most 512 KiB", Surroundings::Limits(SHORT_FILES)),
    ("40 MiB of addresses", Surroundings::Limits(LITTLE_SPACE)),
    ("nobody, 16 open files and processes, no locked memory", Surroundings::Nobody(LOW)),
    ("memfds that can be executed (`vm.memfd_noexec=2`)", Surroundings::NoExecutable),
    ("a user namespace without names", Surroundings::UserNamespace),
];

/// The process in which an operation runs; otherwise nothing.
#[test]
fn operation() {
    operations::run();
}

/// An operation of the library, in a process of its own. The filter begins with the operation.
fn operate(operation: &str, file: &Path, surroundings: Surroundings) -> Option<Output> {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "operation", "--nocapture", "--test-threads=1"]);
    command.env("RESTRICTED", operation).env("RESTRICTED_FILE", file);
    match surroundings {
        Surroundings::Call(call, errno) => {
            command.env("RESTRICTED_CALL", call.to_string());
            command.env("RESTRICTED_ERRNO", errno.to_string());
        }
        other => other.apply(&mut command),
    }
    command.stdin(Stdio::null()).output().ok()
}

/// `dmabuf-dio load FILE -- cat {}`; without the command `cat` alone.
fn by_command(file: &Path, surroundings: Surroundings, alone: bool) -> Option<Output> {
    let mut command = if alone { Command::new("cat") } else { program() };
    if !alone {
        command.args(["load", "--quiet", "--block-size", "256K"]);
    }
    // The document names the usual folder.
    command.arg(file).stdin(Stdio::null()).env_remove("TMPDIR");
    if !alone {
        command.args(["--", "cat", "{}"]);
    }
    surroundings.apply(&mut command);
    command.output().ok()
}

/// How everything ends in these surroundings; `None` if this process may not create them.
fn try_all(what: &str, file: &Path, surroundings: Surroundings) -> Option<Row> {
    let mut cells = Vec::new();
    for operation in operations::ALL {
        cells.push(Cell::of_operation(&operate(operation, file, surroundings)?));
    }
    let alone = by_command(file, surroundings, true)?;
    let wanted = std::fs::read(file).expect("the file");
    cells.push(if alone.status.success() && alone.stdout == wanted {
        Cell::of_command(&by_command(file, surroundings, false)?, &wanted)
    } else {
        Cell::Nothing
    });
    Some(Row::new(what, cells, file))
}

/// Whether calls can be blocked here, and what the document has is usual: memfds filled through `io_uring`.
fn can_try(file: &Path) -> bool {
    let (_, call) = filter::OURS[0];
    let blocked = Surroundings::Call(call, libc::ENOSYS);
    let usual =
        operate("load", file, Surroundings::Usual).map(|output| Cell::of_operation(&output));
    let can = by_command(file, blocked, true).is_some()
        && matches!(&usual, Some(Cell::Works(backend)) if backend == "memfd");
    if !can {
        println!("skipped: no filters of system calls, or another backend than memfd: {usual:?}");
    }
    can
}

/// The rows of all calls, in their order; `None` if they cannot be blocked.
fn calls(file: &Path) -> Option<Vec<Row>> {
    let try_call = |(name, call): &filter::Call| {
        let [forbidden, missing] = [libc::EPERM, libc::ENOSYS].map(|errno| {
            try_all(&format!("`{}`", &name["SYS_".len()..]), file, Surroundings::Call(*call, errno))
        });
        Some(table::merged([(forbidden?, "EPERM"), (missing?, "ENOSYS")]))
    };
    thread::scope(|scope| {
        let parts = filter::OURS.chunks(filter::OURS.len().div_ceil(THREADS));
        let parts: Vec<_> = parts
            .map(|part| scope.spawn(move || part.iter().map(try_call).collect::<Option<Vec<_>>>()))
            .collect();
        let rows = parts.into_iter().map(|part| part.join().expect("no panic"));
        Some(rows.collect::<Option<Vec<_>>>()?.into_iter().flatten().flatten().collect())
    })
}

#[test]
fn restricted_operations_work_or_name_a_remedy() {
    if std::env::var_os("RESTRICTED").is_some() {
        return;
    }
    let folder = folder();
    let file = folder.path().join("FILE");
    let bytes: Vec<u8> = (0..LENGTH as u32).map(|at| (at ^ (at >> 9)) as u8).collect();
    std::fs::write(&file, bytes).expect("written");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).expect("for nobody");

    if !can_try(&file) {
        return;
    }
    let usual = try_all("", &file, Surroundings::Usual).expect("no restrictions");
    usual.assert_works();
    let mut rows = calls(&file).expect("filters of system calls");
    let mut skipped = Vec::new();
    for (what, surroundings) in OTHERS {
        match try_all(what, &file, *surroundings) {
            Some(row) => rows.push(row),
            None => skipped.push(*what),
        }
    }
    let unclear: Vec<_> = rows.iter().filter_map(table::Row::unclear).collect();
    println!("skipped: {skipped:?}");
    table::check(&usual, rows, &skipped);
    assert!(unclear.is_empty(), "{}", unclear.join("\n"));
}

/// The list of calls is complete.
#[test]
fn no_unlisted_system_call_is_made() {
    if std::env::var_os("RESTRICTED").is_some() {
        return;
    }
    let folder = folder();
    let file = folder.path().join("FILE");
    std::fs::write(&file, vec![7; LENGTH]).expect("written");
    if !can_try(&file) {
        return;
    }
    for operation in operations::ALL {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", "operation", "--nocapture", "--test-threads=1"]);
        command.env("RESTRICTED", operation).env("RESTRICTED_FILE", &file);
        let output = command.env("RESTRICTED_ONLY", "1").output().expect("run it");
        let cell = Cell::of_operation(&output);
        assert!(matches!(cell, Cell::Works(_)), "{operation}: {cell:?}\n{output:?}");
    }
}
