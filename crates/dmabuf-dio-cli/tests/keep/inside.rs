// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a test again where it has a tmpfs of its own, with a size.

use std::path::PathBuf;
use std::process::Command;

const FOLDER: &str = "DMABUF_DIO_TEST_TMPFS";
/// Bytes that the tmpfs has room for.
pub(crate) const SIZE: u64 = 16 << 20;

/// The folder of a tmpfs that only this test uses, in the process that has it. Elsewhere the test is run there, and the
/// result is `None`: it passed, or there can be no tmpfs.
pub(crate) fn own_tmpfs(test: &str) -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return Some(folder.into());
    }
    let folder = crate::common::folder();
    let mount = format!("mount -t tmpfs -o size={SIZE},mode=755 tmpfs \"$0\"");
    let unshare = |namespaces: &str, then: &str| {
        let mut command = Command::new("unshare");
        command.args([namespaces, "sh", "-c", &format!("{mount} && {then}")]).arg(folder.path());
        command
    };
    let works = |namespaces: &&str| {
        unshare(namespaces, "true").output().is_ok_and(|output| output.status.success())
    };
    let Some(namespaces) = ["-Urm", "-m"].iter().find(|namespaces| works(namespaces)) else {
        println!("skipped: no tmpfs can be mounted in a namespace");
        return None;
    };
    let program = std::env::current_exe().expect("this program");
    let mut command = unshare(namespaces, "exec \"$@\"");
    command.arg(program).args(["--exact", test, "--nocapture", "--test-threads=1"]);
    let status = command.env(FOLDER, folder.path()).status().expect("started");
    assert!(status.success(), "{test}, in a namespace: {status}");
    None
}

/// Bytes of the tmpfs that are in use.
pub(crate) fn used(folder: &std::path::Path) -> u64 {
    let found = rustix::fs::statvfs(folder).expect("a file system");
    (found.f_blocks - found.f_bfree) * found.f_frsize
}
