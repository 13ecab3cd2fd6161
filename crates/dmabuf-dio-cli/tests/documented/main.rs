// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks every command in the documentation, and runs those that need no device, guest or network.

#[path = "../common/mod.rs"]
mod common;

mod check;
mod markdown;
mod words;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use check::{Checker, repository};
use markdown::{Documented, Place};

/// Whether this is a guest. The documents are the same there, and its processor is emulated.
fn in_guest() -> bool {
    let guest = std::env::var_os("DMABUF_DIO_KERNEL").is_some();
    if guest {
        println!("skipped: tested on the host");
    }
    guest
}

fn documents() -> Vec<PathBuf> {
    let repository = repository();
    let mut all: Vec<_> = ["README.md", "CONTRIBUTING.md", "vm/README.md"]
        .iter()
        .map(|name| repository.join(name))
        .collect();
    let is_markdown = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "md");
    for folder in ["docs", "docs/notes"] {
        let docs = fs::read_dir(repository.join(folder)).expect("docs").flatten();
        all.extend(docs.map(|entry| entry.path()).filter(is_markdown));
    }
    all.sort();
    all
}

fn commands() -> Vec<Documented> {
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a document");
        let name = path.strip_prefix(repository()).expect("in the repository");
        markdown::commands(&name.display().to_string(), &text)
    };
    documents().into_iter().flat_map(read).collect()
}

#[test]
fn every_documented_command_parses() {
    if in_guest() {
        return;
    }
    let (commands, checker) = (commands(), Checker::new());
    let wrong: Vec<_> = commands
        .iter()
        .filter_map(|one| {
            Some(format!("{}: {}\n    {}", one.at, one.line, checker.check(one).err()?))
        })
        .collect();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), commands.len(), wrong.join("\n"));
    let blocks = commands.iter().filter(|one| one.place == Place::Block).count();
    println!("{} commands, {blocks} of them in blocks", commands.len());
    assert!(blocks > 20, "only {blocks} commands were found in blocks");
}

/// Creates the files that a command reads, and `./runtime`.
fn prepare(folder: &Path, files: &[PathBuf]) {
    for file in files {
        let path = folder.join(file);
        assert!(path.starts_with(folder) && !file.is_absolute(), "{}", file.display());
        fs::write(path, file.display().to_string().repeat(10_000)).expect("written");
    }
    let inherits = "test $DMABUF_DIO_LEN -gt 0 && test -e /proc/self/fd/$DMABUF_DIO_FD";
    for reader in check::READERS {
        let program = folder.join(reader);
        // The path is the last argument.
        let opens = "eval test -s \\${$#}";
        let does = if reader == "./runtime" { inherits } else { opens };
        fs::write(&program, format!("#!/bin/sh\n{does}\n")).expect("written");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("permissions");
    }
}

/// `doctor`, `load` and `save` run as documented. `capture` and `replay` need an IIO device: see
/// `stream.rs`.
#[test]
fn commands_run_as_documented() {
    if in_guest() {
        return;
    }
    let program = Path::new(env!("CARGO_BIN_EXE_dmabuf-dio"));
    let path = std::env::var("PATH").expect("PATH");
    let path = format!("{}:{path}", program.parent().expect("a folder").display());
    let mut count = 0;
    for one in commands().iter().filter(|one| one.place == Place::Block) {
        let Some(run) = check::runnable(&one.line) else { continue };
        let folder = common::folder();
        prepare(folder.path(), &run.reads);
        let mut command = Command::new("sh");
        let path = format!("{}:{path}", folder.path().display());
        command.args(["-c", &one.line]).current_dir(folder.path()).env("PATH", path);
        let output = command.output().expect("sh");
        assert!(output.status.success(), "{}: {}\n{output:?}", one.at, one.line);
        if let (Some(copy), [original]) = (&run.writes, &run.reads[..]) {
            let read = |path| fs::read(folder.path().join(path)).expect("a file");
            let (copy, mut original) = (read(copy), read(original));
            if one.line.contains("--offset 4096 --length 64KiB") {
                original = original[4096..4096 + (64 << 10)].to_vec();
            }
            assert!(copy == original, "{}: {}: a different copy", one.at, one.line);
        }
        count += 1;
    }
    assert!(count >= 4, "only {count} commands were run");
}

/// The checks above can fail.
#[test]
fn wrong_documented_command_is_found() {
    if in_guest() {
        return;
    }
    let checker = Checker::new();
    let verdict = |line: &str| {
        let found = markdown::commands("test.md", &format!("```sh\n{line}\n```\n"));
        assert_eq!(found.len(), 1, "{line}");
        checker.check(&found[0])
    };
    for right in [
        "sudo make dkms && make build   # a comment",
        "make nightly ONLY=\"debug uml\" UML_SECONDS=3600",
        "dmabuf-dio load a -- dmabuf-dio save b",
        "sudo dmabuf-dio-bench compare --dir /mnt/nvme",
        "vm/run --kernel 7.3 --fs xfs \\\n    -- dmabuf-dio doctor",
        "KERNEL_SRC=~/linux vm/run --kernel 7.3-plain -- COMMAND",
        "vm/run --kernel 7.3 -- sh -c 'cd x && tests/guest/run-all'",
        "tools/build-kselftests \"$(vm/kernel --sources 7.3-series)\"",
    ] {
        assert_eq!(verdict(right), Ok(()), "{right}");
    }
    for (wrong, why) in [
        ("dmabuf-dio laod a", "unrecognized subcommand"),
        ("dmabuf-dio load a --chunk 4K", "unexpected argument"),
        ("dmabuf-dio capture adc", "--to"),
        ("dmabuf-dio load a -- dmabuf-dio save", "<FILE>"),
        ("dmabuf-dio load a -- nothing", "nothing"),
        ("dmabuf-dio-bench compare --no-such 1", "no --no-such"),
        ("dmabuf-dio-bench compaer", "no compaer"),
        ("make deom", "no target deom"),
        ("make demo && make nothing", "no target nothing"),
        ("make nightly ONLY='debug nothing'", "no part nothing"),
        ("vm/run --kernel 5.4 -- true", "invalid choice"),
        ("vm/run --kernel 7.3 --no-such -- true", "unrecognized arguments"),
        ("vm/run --kernel 7.3", "after '--'"),
        ("vm/run --kernel 7.3 -- tests/guest/nothing", "tests/guest/nothing"),
        ("vm/run --kernel 7.3 -- sh -c 'tests/guest/nothing'", "tests/guest/nothing"),
        ("vm/run --kernel 7.3 -- dmabuf-dio laod", "unrecognized subcommand"),
        ("vm/run --kernel 7.3 -- no-such-program", "no-such-program"),
        ("tools/build-kselftests \"$(vm/krenel)\"", "vm/krenel"),
        ("tests/matrix no-such-job", "no job"),
        ("cargo test -p no-such-crate", "no-such-crate"),
        ("cargo run --example no-such", "no-such"),
        ("rm -rf /", "rm"),
    ] {
        let error = verdict(wrong).expect_err(wrong);
        assert!(error.contains(why), "{wrong}: {error}");
    }
}

#[test]
fn words_are_spelled_as_the_table_says() {
    if in_guest() {
        return;
    }
    let (table, faces) = (words::table(), words::faces());
    assert!(table.len() > 10, "{} rows", table.len());
    let mut wrong = Vec::new();
    for row in &table {
        for ((face, spelled), found) in words::FACES.iter().zip(&row.spelled).zip(&faces) {
            let missing = spelled.iter().filter(|name| !found.contains(*name));
            wrong.extend(missing.map(|name| format!("{}: {face} has no {name}", row.word)));
            let there = row.banned.iter().filter(|name| found.contains(*name));
            wrong.extend(there.map(|name| format!("{}: {face} still has {name}", row.word)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
