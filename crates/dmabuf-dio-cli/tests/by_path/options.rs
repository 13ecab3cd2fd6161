// SPDX-License-Identifier: MIT OR Apache-2.0
//! Each option of `load` has an effect, or is refused, for each thing that can be loaded.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::common::{folder, text};
use crate::run;

/// The loaded files, and their user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    /// A file, without a command.
    File,
    /// A file, for a command that inherits its descriptor.
    Inherited,
    /// A file, for a command that opens it by path.
    ByPath,
    /// All parts of a split GGUF, for such a command.
    Parts,
    /// A folder, for such a command.
    Folder,
}

use Load::{ByPath, Folder, Inherited, Parts};

impl Load {
    const ALL: [Self; 5] = [Self::File, Inherited, ByPath, Parts, Folder];

    /// The path to load, and the command.
    fn arguments(self, root: &Path) -> (PathBuf, &'static [&'static str]) {
        let path = root.join(if self == Folder { "" } else { "m-00001-of-00002.gguf" });
        match self {
            Self::File => (root.join("m.bin"), &[]),
            Inherited => (root.join("m.bin"), &["--", "true"]),
            ByPath => (root.join("m.bin"), &["--", "true", "{}"]),
            Parts | Folder => (path, &["--", "true", "{}"]),
        }
    }
}

/// How an option shows that it is not ignored.
enum Effect {
    /// The report of each file has this value.
    Report(&'static str, Value),
    /// So many files are loaded.
    Files(usize),
    /// The library refuses the value of the option.
    BadValue,
    /// The command refuses the option and says why, with exit code 2.
    Refused(&'static str),
    /// The load fails, and the hint has this word.
    Fails(&'static str),
    /// A report with this word is printed.
    Prints(&'static str),
    /// Nothing is printed.
    Silence,
}

use Effect::{BadValue, Fails, Files, Prints, Refused, Report, Silence};

/// The effect of an option, which is the first word.
fn effect(option: &[&str], load: Load) -> Effect {
    let by_path = matches!(load, ByPath | Parts | Folder);
    match option[0] {
        "--backend" => Report("/backend", json!("buffered")),
        "--kind" if by_path => Refused("has no path for COMMAND"),
        "--kind" => Report("/buffer", json!("memfd")),
        "--offset" | "--length" if load == Folder => Refused("a range of a folder"),
        "--offset" => Report("/offset", json!(4096)),
        "--length" => Report("/bytes", json!(4096)),
        "--min-size" if load == Folder => Files(4),
        "--min-size" => Refused("--min-size needs a folder"),
        "--allocation-step" | "--block-size" | "--queue-depth" => BadValue,
        "--small-pages" if by_path => Report("/huge_bytes", json!(0)),
        // Without a path it may be a dma-buf, which does not report its pages.
        "--small-pages" => Files(1),
        "--numa" => Report("/numa", json!("local")),
        "--lock" if may_lock(64 << 20) => Report("/locked", json!(true)),
        "--lock" => Fails("ulimit -l"),
        "--buffered" => Prints("\"0 of 16777216 bytes requested with O_DIRECT"),
        "--verify" => Report("/verify/identical", json!(true)),
        "--json" => Report("/operation", json!("load")),
        "--verbose" => Prints("evidence"),
        "--quiet" => Silence,
        "--sha256" | "--sums" | "--ca" => Refused("are for objects, and this is a file"),
        other => panic!("{other} has no row"),
    }
}

/// Whether a process may lock so many bytes.
fn may_lock(bytes: usize) -> bool {
    let (none, flags) = (std::ptr::null_mut(), libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: new memory, which nothing else uses.
    unsafe {
        let memory = libc::mmap(none, bytes, libc::PROT_READ, flags, -1, 0);
        let locked = libc::mlock(memory, bytes) == 0;
        libc::munmap(memory, bytes);
        locked
    }
}

/// Any SHA-256
const SHA256: &str = "0000000000000000000000000000000000000000000000000000000000000000";

const OPTIONS: [&[&str]; 19] = [
    &["--backend", "buffered"],
    &["--kind", "memfd"],
    &["--offset", "4K"],
    &["--length", "4K"],
    &["--allocation-step", "1"],
    &["--min-size", "1K"],
    &["--small-pages"],
    &["--numa", "local"],
    &["--lock"],
    &["--block-size", "1"],
    &["--queue-depth", "0"],
    &["--buffered"],
    &["--json"],
    &["--verbose"],
    &["--quiet"],
    &["--verify"],
    &["--sha256", SHA256],
    &["--sums", "sums"],
    &["--ca", "ca.pem"],
];

/// Three files that are loaded by default, and one that is too small.
fn files(root: &Path) {
    for name in ["m.bin", "m-00001-of-00002.gguf", "m-00002-of-00002.gguf"] {
        File::create(root.join(name)).expect("create").set_len(16 << 20).expect("extend");
    }
    fs::write(root.join("small"), [7; 4096]).expect("write");
}

#[test]
fn table_has_every_option_of_load() {
    let command = dmabuf_dio_cli::command_line();
    let load = command.find_subcommand("load").expect("it loads");
    let known: BTreeSet<_> =
        load.get_arguments().filter_map(|argument| argument.get_long()).collect();
    let rows: BTreeSet<_> = OPTIONS.iter().map(|option| &option[0][2..]).collect();
    assert_eq!(rows, known);
}

#[test]
fn options_of_load_have_an_effect_or_are_refused() {
    let folder = folder();
    files(folder.path());
    for option in OPTIONS {
        for load in Load::ALL {
            check(folder.path(), option, load);
        }
    }
}

fn check(root: &Path, option: &[&str], load: Load) {
    let (path, command) = load.arguments(root);
    let effect = effect(option, load);
    let report: &[&str] = match effect {
        BadValue | Fails(_) | Refused(_) | Silence => &[],
        _ if matches!(option[0], "--json" | "--verbose") => &[],
        _ => &["--json"],
    };
    let output = run(&[&[text(&path)], option, report, command].concat());
    let (out, errors) = (
        String::from_utf8(output.stdout).expect("text"),
        String::from_utf8(output.stderr).expect("text"),
    );
    let what = format!("{option:?} for {load:?}: {:?}\n{out}\n{errors}", output.status);
    let printed = if load == Load::File { &out } else { &errors };
    match effect {
        BadValue => {
            assert!(!output.status.success() && errors.contains(option[0]), "{what}");
            return;
        }
        Refused(why) => {
            assert!(output.status.code() == Some(2) && errors.contains(why), "{what}");
            return;
        }
        Fails(hint) => {
            assert!(output.status.code() == Some(1) && errors.contains(hint), "{what}");
            return;
        }
        _ => assert!(output.status.success(), "{what}"),
    }
    match effect {
        Prints(text) => assert!(printed.contains(text), "{what}"),
        Silence => assert_eq!((&*out, &*errors), ("", ""), "{what}"),
        Report(place, value) => {
            for report in reports(printed) {
                assert_eq!(report.pointer(place), Some(&value), "{what}");
            }
        }
        Files(count) => assert_eq!(reports(printed).len(), count, "{what}"),
        BadValue | Fails(_) | Refused(_) => {}
    }
}

/// The reports of all loaded files.
fn reports(text: &str) -> Vec<Value> {
    let report: Value = serde_json::from_str(text).expect("JSON");
    match report.get("files").and_then(Value::as_array) {
        Some(files) => files.clone(),
        None => vec![report],
    }
}
