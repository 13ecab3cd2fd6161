// SPDX-License-Identifier: MIT OR Apache-2.0
//! `load PATH -- COMMAND {}`: the files for the command, its end, and the remains.

#[path = "../common/mod.rs"]
mod common;

mod command;
mod files;
mod folders;
mod options;
mod signals;

use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use common::{folder, program};
use tempfile::TempDir;

/// `load`, with private folders in `temporary`.
fn load(temporary: &TempDir, arguments: &[&str]) -> Command {
    let mut command = program();
    command.env("TMPDIR", temporary.path()).env_remove("XDG_RUNTIME_DIR");
    command.env_remove("DMABUF_DIO_FILES").arg("load").args(arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Arguments of `load` for a command of the shell, whose first argument is the path.
fn shell<'a>(load: &[&'a str], script: &'a str, after: &[&'a str]) -> Vec<&'a str> {
    [load, &["--", "sh", "-c", script, "x"], after].concat()
}

/// Runs it, and checks that no private folder stays.
fn run(arguments: &[&str]) -> Output {
    let temporary = folder();
    let output = load(&temporary, arguments).output().expect("run dmabuf-dio");
    assert_eq!(private(&temporary), [] as [PathBuf; 0], "{arguments:?} leaves a folder");
    output
}

/// Runs a command that has to succeed, and returns what it prints.
#[track_caller]
fn ok(arguments: &[&str]) -> String {
    let output = run(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {:?}\n{errors}", output.status);
    String::from_utf8(output.stdout).expect("text")
}

/// Runs a command that has to fail with `code`. Returns its errors.
#[track_caller]
fn fails(code: i32, arguments: &[&str]) -> String {
    let output = run(arguments);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}\n{errors}");
    errors
}

fn private(temporary: &TempDir) -> Vec<PathBuf> {
    let entries = fs::read_dir(temporary.path()).expect("the folder").flatten();
    entries.map(|entry| entry.path()).collect()
}

/// A model's folder: two shards, small files, one of them in a folder.
fn model(folder: &TempDir) -> PathBuf {
    let root = folder.path().join("model");
    fs::create_dir_all(root.join("tokenizer/empty")).expect("folders");
    for (name, len) in [
        ("model-00001-of-00002.safetensors", 5_000_001),
        ("model-00002-of-00002.safetensors", (2 << 20) + 7),
        ("config.json", 700),
        ("tokenizer/vocab.txt", 1000),
    ] {
        let bytes: Vec<u8> = (0..len).map(|at| (at ^ (at >> 9) ^ len) as u8).collect();
        let mut file = File::create(root.join(name)).expect("create");
        file.write_all(&bytes).expect("write");
        file.sync_all().expect("sync");
    }
    root
}
