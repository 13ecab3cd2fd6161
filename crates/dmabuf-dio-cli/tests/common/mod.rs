// SPDX-License-Identifier: MIT OR Apache-2.0
//! Code that the tests share.
//!
//! `DMABUF_DIO_TEST_DIR` is the folder for test files. Its file system must support `O_DIRECT`.

#![allow(dead_code)]

pub(crate) mod iio;

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A folder for one test.
pub(crate) fn folder() -> TempDir {
    let parent = std::env::var_os("DMABUF_DIO_TEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
    tempfile::Builder::new().prefix("cli-").tempdir_in(parent).expect("a folder for the test")
}

/// Bytes of a page of this machine.
pub(crate) fn page_size() -> u64 {
    // SAFETY: the call takes a number.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.try_into().expect("a positive number")
}

/// Bytes of a huge page of this machine.
pub(crate) fn huge_page() -> u64 {
    let told = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size");
    told.map_or(page_size() * page_size() / 8, |text| text.trim().parse().expect("a number"))
}

/// The longest wait for a condition. It ends a hang; nothing depends on it, as a machine may be busy.
const LONG: Duration = Duration::from_secs(600);

/// Waits for a condition.
#[track_caller]
pub(crate) fn eventually(otherwise: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < LONG, "{otherwise}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A connection to a command that is about to listen.
#[track_caller]
pub(crate) fn connected<T>(mut connect: impl FnMut() -> std::io::Result<T>) -> T {
    let mut last = connect();
    let begin = Instant::now();
    while last.is_err() && begin.elapsed() < LONG {
        thread::sleep(Duration::from_millis(5));
        last = connect();
    }
    last.expect("a connection")
}

/// The command, without an inherited buffer, and with signals as a terminal's job has them.
pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dmabuf-dio"));
    for name in ["DMABUF_DIO_FD", "DMABUF_DIO_OFFSET", "DMABUF_DIO_LEN"] {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    // SAFETY: the closure makes system calls only, which are async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            // Shells ignore some of them for background jobs, and nohup ignores SIGHUP.
            for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP] {
                libc::signal(signal, libc::SIG_DFL);
            }
            Ok(())
        });
    }
    command
}

/// The arguments of the command: a list, or a line without quotes.
pub(crate) trait Words: std::fmt::Debug {
    fn words(&self) -> Vec<&str>;
}

impl Words for str {
    fn words(&self) -> Vec<&str> {
        self.split_whitespace().collect()
    }
}

impl Words for String {
    fn words(&self) -> Vec<&str> {
        self.as_str().words()
    }
}

impl Words for [&str] {
    fn words(&self) -> Vec<&str> {
        self.to_vec()
    }
}

impl<const N: usize> Words for [&str; N] {
    fn words(&self) -> Vec<&str> {
        self.to_vec()
    }
}

impl Words for Vec<&str> {
    fn words(&self) -> Vec<&str> {
        self.clone()
    }
}

impl<T: Words + ?Sized> Words for &T {
    fn words(&self) -> Vec<&str> {
        (**self).words()
    }
}

pub(crate) fn run(arguments: impl Words) -> Output {
    program().args(arguments.words()).output().expect("run dmabuf-dio")
}

/// Runs a command that has to succeed. Returns its standard output.
#[track_caller]
pub(crate) fn ok(arguments: impl Words) -> String {
    let output = run(&arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {:?}\n{errors}", output.status);
    String::from_utf8(output.stdout).expect("text")
}

/// A file in which all pages differ.
pub(crate) fn file(folder: &TempDir, len: usize) -> (PathBuf, Vec<u8>) {
    let path = folder.path().join(format!("file-{len}"));
    let bytes: Vec<u8> = (0..len).map(|at| (at ^ (at >> 8) ^ (at >> 15)) as u8).collect();
    let mut file = std::fs::File::create(&path).expect("create");
    file.write_all(&bytes).expect("write");
    file.sync_all().expect("sync");
    (path, bytes)
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("a path of text")
}
