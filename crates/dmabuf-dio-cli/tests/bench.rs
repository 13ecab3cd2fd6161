// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio bench`, as a user types it.
//!
//! `DMABUF_DIO_TEST_DIR` says where the file goes. `DMABUF_DIO_REQUIRE` names what a guest has to
//! offer: rows that need only that must have figures.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

const READ_GATHER: &str = "/sys/module/dma_heap/parameters/read_gather";

fn folder() -> TempDir {
    let parent = std::env::var_os("DMABUF_DIO_TEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
    tempfile::Builder::new().prefix("bench-").tempdir_in(parent).expect("a folder for the test")
}

fn bench(folder: &TempDir, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dmabuf-dio"))
        .arg("bench")
        .args(arguments)
        .arg("--keep-caches")
        .arg("--dir")
        .arg(folder.path())
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .output()
        .expect("run dmabuf-dio")
}

#[track_caller]
fn ok(folder: &TempDir, arguments: &[&str]) -> String {
    let output = bench(folder, arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let code = output.status.code();
    // Without any dma-buf no scheme of `bench load` can be measured.
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
fn table_moves_every_byte() {
    let folder = folder();
    let arguments =
        ["table", "--buffers", "3", "--size", "192K", "--runs", "2", "--direction", "both"];
    let table = json(&folder, &arguments);
    assert_eq!(table["schema"], 1);
    assert_eq!((&table["buffers"], &table["runs"]), (&3.into(), &2.into()));
    assert_eq!(table["buffer_size"], 192 << 10);
    for fact in ["kernel", "machine", "file_system", "directory", "caches_dropped_by"] {
        assert!(!text(&table[fact]).is_empty(), "{fact}");
    }
    let parts = list(&table["parts"]);
    assert_eq!([&parts[0]["direction"], &parts[1]["direction"]], ["read", "write"]);
    for part in parts {
        let rows = list(&part["rows"]);
        assert_eq!(rows.len(), 22);
        for (row, number) in rows.iter().zip(1..) {
            assert_eq!(row["number"], number);
            let copied = row["way"] == "copy_file_range";
            let must = match text(&row["buffer"]) {
                "memfd" => !copied && required("memfd"),
                "u+memfd" => !copied && required("udmabuf"),
                "udmabuf" => required(if copied { "copy_file_range" } else { "udmabuf" }),
                "dmabuf" => required(if copied { "copy_file_range" } else { "buffered" }),
                other => panic!("what is a {other}?"),
            };
            if has_figures(row, must) {
                for figure in ["create_ms", "close_ms", "io_ms", "io_cpu_ms"] {
                    is_summary(&row[figure], 2);
                }
                assert!(row["io_mb_per_s"].as_f64().expect("a number") > 0.0, "{row}");
                assert!(row["percent"].as_f64().expect("a number") > 0.0, "{row}");
            }
        }
        let buffered = &rows[2];
        assert_eq!(buffered["name"], "memfd buffer R/W");
        assert_eq!(buffered["status"], "verified", "works everywhere: {buffered}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("list").count(), 0, "nothing is left");
}

#[test]
fn load_moves_every_byte_and_sets_back_what_it_sets() {
    let folder = folder();
    let gather = || std::fs::read_to_string(READ_GATHER).ok();
    let before = gather();
    let arguments = ["load", "--sizes", "64K,600K", "--runs", "2", "--gather", "200K"];
    let comparison = json(&folder, &arguments);
    assert_eq!(gather(), before);
    let sizes = list(&comparison["sizes"]);
    assert_eq!([&sizes[0]["bytes"], &sizes[1]["bytes"]], [64 << 10, 600 << 10]);
    for size in sizes {
        let rows = list(&size["rows"]);
        assert_eq!(rows.len(), 13);
        for row in rows {
            let words: Vec<&str> = text(&row["name"]).split([' ', ',']).collect();
            let must = match words[..] {
                ["normal"] => required("buffered"),
                ["udmabuf" | "sendfile", _] => required("udmabuf"),
                ["LOAD", by, ..] => required(by),
                _ => panic!("what is {words:?}?"),
            };
            if !has_figures(row, must) {
                continue;
            }
            is_summary(&row["total_ms"], 2);
            let with_gather = words.contains(&"gather");
            assert_eq!(row["derived"], words[0] == "LOAD");
            assert_eq!(row["hidden_ms"].is_null(), !with_gather, "{row}");
            assert_eq!(row["allocation_ms"].is_null(), with_gather, "{row}");
            let values = |name: &str| -> Vec<f64> {
                let values = list(&row[name]["values"]).iter();
                values.map(|value| value.as_f64().expect("a number")).collect()
            };
            if !with_gather {
                let parts = values("allocation_ms").into_iter().zip(values("io_ms"));
                for ((allocation, io), total) in parts.zip(values("total_ms")) {
                    assert!((allocation + io - total).abs() < 1e-6, "{row}");
                }
            }
        }
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("list").count(), 0, "nothing is left");
}

#[test]
fn cost_compares_every_byte_and_has_all_phases() {
    let folder = folder();
    let arguments = ["cost", "--sizes", "4K,1M", "--runs", "2", "--commit", "abc"];
    let cost = json(&folder, &arguments);
    assert_eq!(
        (&cost["schema"], &cost["bench"], &cost["commit"]),
        (&1.into(), &"cost".into(), &"abc".into())
    );
    let icount = std::env::var_os("DMABUF_DIO_ICOUNT").is_some();
    assert_eq!(cost["unit"], if icount { "instructions" } else { "nanoseconds" });
    let sizes = list(&cost["sizes"]);
    assert_eq!([&sizes[0]["per"], &sizes[1]["per"]], ["transfer", "MiB"]);
    for way in sizes.iter().flat_map(|size| list(&size["ways"])) {
        let (from, name) = text(&way["name"]).split_once(": ").expect("two parts");
        let must = match (from, name) {
            ("malloc", _) | ("memfd", "read()") => true,
            ("memfd, faulted in", _) => required("memfd"),
            ("heap", _) => required("buffered"),
            ("module", name) if name.starts_with("slot") => required("slot"),
            ("module", _) => required("module"),
            ("series", name) if name.starts_with("copy_file_range") => required("copy_file_range"),
            ("series", _) => required("heap"),
            ("library", backend) => required(backend),
            _ => panic!("what is {way}?"),
        };
        if !has_figures(way, must) {
            continue;
        }
        is_summary(&way["total"], 2);
        is_summary(&way["close"], 2);
        let phases = ["allocation", "io", "load"].map(|phase| !way[phase].is_null());
        match (from, name) {
            ("library", _) | (_, "LOAD" | "heap flag") => assert_eq!(phases, [false, false, true]),
            ("heap", "allocate") => assert_eq!(phases, [true, false, false]),
            (_, name) if name.starts_with("attach") => assert_eq!(phases, [true, false, false]),
            _ => assert_eq!(phases, [true, true, false], "{way}"),
        }
        let value = |phase: &str, run: usize| way[phase]["values"][run].as_f64();
        for run in 0..2 {
            let sum: f64 =
                ["allocation", "io", "load", "close"].iter().filter_map(|p| value(p, run)).sum();
            let total = value("total", run).expect("a total");
            assert!((sum - total).abs() < 1.0 && total > 0.0, "{way}");
        }
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("list").count(), 0, "nothing is left");
}

#[test]
fn cost_of_some_ways() {
    let folder = folder();
    let small = ["cost", "--sizes", "64K", "--runs", "1"];
    let printed = ok(&folder, &[&small[..], &["--only", "malloc", "--only", "READ"]].concat());
    assert!(printed.lines().all(|line| line.chars().count() <= 100), "{printed}");
    assert!(printed.contains("malloc: read()") && printed.contains("module: READ"), "{printed}");
    assert!(!printed.contains("heap: allocate"), "{printed}");
    let output = bench(&folder, &["cost", "--only", "no such way"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn text_fits_a_terminal_and_files_hold_what_was_asked_for() {
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
fn what_does_not_fit_is_said() {
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
fn wrong_usage_is_2() {
    let folder = folder();
    for arguments in [
        &["table", "--size", "5000"][..],
        &["table", "--size", "0"],
        &["table", "--buffers", "0"],
        &["table", "--runs", "0"],
        &["table", "--json", "--markdown"],
        &["load", "--sizes", "8M,"],
        &["nothing"],
    ] {
        assert_eq!(bench(&folder, arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn help_has_examples_and_exit_codes() {
    let folder = folder();
    for what in ["table", "load", "cost"] {
        let help = ok(&folder, &[what, "--help"]);
        assert!(help.contains("Examples:") && help.contains("Exit codes:"), "{help}");
    }
}
