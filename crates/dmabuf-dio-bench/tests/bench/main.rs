// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio-bench`, as a user types it.
//!
//! `DMABUF_DIO_REQUIRE` names what a guest has to offer: rows that need only that must have
//! figures.

mod compare;
mod cost;
mod load;
mod rates;
mod small;
mod stream;
mod table;

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A folder for one test, on a file system with `O_DIRECT`.
fn folder() -> TempDir {
    let parent = std::env::var_os("DMABUF_DIO_TEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
    tempfile::Builder::new().prefix("bench-").tempdir_in(parent).expect("a folder for the test")
}

fn bench(folder: &TempDir, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dmabuf-dio-bench"))
        .args(arguments)
        .arg("--keep-caches")
        .arg("--dir")
        .arg(folder.path())
        .env("DMABUF_DIO_COMMIT", "abc")
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .output()
        .expect("run dmabuf-dio-bench")
}

#[track_caller]
fn ok(folder: &TempDir, arguments: &[&str]) -> String {
    let output = bench(folder, arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let code = output.status.code();
    // Without any dma-buf no scheme of `load` can be measured.
    let nothing = code == Some(3) && arguments[0] == "load" && !required("udmabuf");
    assert!(code == Some(0) || nothing, "{arguments:?}: {code:?}\n{errors}\n{printed}");
    printed
}

#[track_caller]
fn json(folder: &TempDir, arguments: &[&str]) -> Value {
    let printed = ok(folder, &[arguments, &["--json"]].concat());
    serde_json::from_str(&printed).expect("JSON")
}

/// Whether this kernel must offer something.
fn required(backend: &str) -> bool {
    let list = std::env::var("DMABUF_DIO_REQUIRE").unwrap_or_default();
    list.split(',').any(|name| name == backend)
}

/// Libiio's `iio_rwdev`, if the environment names it.
fn peer() -> Option<String> {
    let path = std::env::var("DMABUF_DIO_IIO_RWDEV").ok();
    if path.is_none() {
        println!("without libiio: DMABUF_DIO_IIO_RWDEV does not name iio_rwdev 1.0 or later");
    }
    path
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

#[track_caller]
fn is_summary(value: &Value, runs: usize) {
    let number = |name: &str| value[name].as_f64().expect("a number");
    assert_eq!(list(&value["values"]).len(), runs, "{value}");
    assert!(number("min") <= number("median") && number("median") <= number("max"), "{value}");
}

/// A row has figures, or says why not. `must` says that it has to have them.
#[track_caller]
fn has_figures(row: &Value, must: bool) -> bool {
    match text(&row["status"]) {
        "verified" => {
            assert_eq!((&row["reason"], &row["errno"]), (&Value::Null, &Value::Null), "{row}");
            true
        }
        "unavailable" => {
            assert!(!must, "this kernel must offer it: {row}");
            // What the library refuses without asking the kernel has none.
            let (reason, errno) = (text(&row["reason"]), row["errno"].as_str().unwrap_or(""));
            assert!(reason.contains(errno) && reason.len() > errno.len() + 20, "{row}");
            false
        }
        status => panic!("{status}: {row}"),
    }
}

#[test]
fn text_fits_a_terminal_and_output_files_have_their_format() {
    let folder = folder();
    let small = ["table", "--buffers", "1", "--size", "64K", "--runs", "2"];
    let printed = ok(&folder, &[&small[..], &["--markdown", "--output", "table.md"]].concat());
    assert!(printed.lines().all(|line| line.chars().count() <= 100), "{printed}");
    assert!(printed.contains("dmabuf direct c_f_r") && printed.contains("CPU-ms"), "{printed}");
    let file = folder.path().join("table.md");
    let markdown = std::fs::read_to_string(&file).expect("the result");
    assert_eq!(markdown.lines().filter(|line| line.starts_with("| ")).count(), 23, "{markdown}");

    let small = ["load", "--sizes", "64K", "--runs", "1"];
    let printed = ok(&folder, &small);
    assert!(printed.lines().all(|line| line.chars().count() <= 100), "{printed}");
    assert!(printed.contains("LOAD module direct, gather"), "{printed}");
}

#[test]
fn too_large_size_is_an_error() {
    let folder = folder();
    for size in ["16T", "1T"] {
        let output = bench(&folder, &["table", "--size", size]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains("do not fit") && errors.contains("--size"), "{errors}");
    }
    let comparison = json(&folder, &["load", "--sizes", "64K,16T", "--runs", "1"]);
    let reason = text(&comparison["sizes"][1]["reason"]);
    assert!(reason.contains("do not fit"), "{reason}");
    assert_eq!(bench(&folder, &["load", "--sizes", "16T"]).status.code(), Some(3));
}

#[test]
fn wrong_usage_exits_with_2() {
    let folder = folder();
    for arguments in [
        &["table", "--size", "5000"][..],
        &["table", "--size", "0"],
        &["table", "--buffers", "0"],
        &["table", "--runs", "0"],
        &["table", "--json", "--markdown"],
        &["load", "--sizes", "8M,"],
        &["compare", "--ways", "none"],
        &["compare", "--peer", "no command"],
        &["small", "--depths", "0"],
        &["small", "--only", "no such line"],
        &["nothing"],
    ] {
        assert_eq!(bench(&folder, arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn help_has_examples_and_exit_codes() {
    let folder = folder();
    for what in ["table", "load", "compare", "cost", "small"] {
        let help = ok(&folder, &[what, "--help"]);
        assert!(help.contains("Examples:") && help.contains("Exit codes:"), "{help}");
    }
}
