// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio-bench`, as a user types it.
//!
//! `DMABUF_DIO_REQUIRE` names what a guest has to offer: rows that need only that must have
//! figures.

mod compare;
mod streams;

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

fn program(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dmabuf-dio-bench"));
    command.args(shlex::split(arguments).expect("words")).stdin(Stdio::null());
    command
}

fn bench(folder: &TempDir, arguments: &str) -> Output {
    let mut command = program(arguments);
    command.args(["--keep-caches", "--dir"]).arg(folder.path());
    command.env("DMABUF_DIO_COMMIT", "abc").current_dir(folder.path());
    command.output().expect("run dmabuf-dio-bench")
}

/// The result, of which nothing else is left behind.
#[track_caller]
fn result(arguments: &str) -> Value {
    let (folder, name) = (folder(), arguments.split(' ').next().expect("a word"));
    let output = bench(&folder, &format!("{arguments} --output result"));
    let path = folder.path().join("result");
    // Without any dma-buf no way of `load` may be measured.
    let nothing = output.status.code() == Some(3) && name == "load" && !required("udmabuf");
    assert!(output.status.success() || nothing, "{arguments:?}: {output:?}");
    let result: Value =
        serde_json::from_slice(&std::fs::read(&path).expect("the result")).expect("JSON");
    std::fs::remove_file(path).expect("removed");
    assert_eq!(std::fs::read_dir(folder.path()).expect("list").count(), 0, "nothing is left");
    assert_eq!((&result["bench"], &result["commit"]), (&name.into(), &"abc".into()));
    result
}

/// Whether this kernel must offer something.
fn required(backend: &str) -> bool {
    let list = std::env::var("DMABUF_DIO_REQUIRE").unwrap_or_default();
    list.split(',').any(|name| name == backend)
}

fn rows(result: &Value) -> &[Value] {
    result["rows"].as_array().expect("rows")
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

/// The values of a figure, if the row has it.
fn values(row: &Value, figure: &str) -> Option<Vec<f64>> {
    let values = row[figure].as_array()?.iter();
    Some(values.map(|value| value.as_f64().expect("a number")).collect())
}

/// A row has these figures for so many runs, or says why not. `must` says that it has to have them.
#[track_caller]
fn has_figures(row: &Value, figures: &[&str], runs: usize, must: bool) -> bool {
    if let Some(reason) = row["unavailable"].as_str() {
        assert!(!must && reason.len() > 20, "this kernel must offer it: {row}");
        return false;
    }
    for figure in figures {
        assert_eq!(values(row, figure).expect("a figure").len(), runs, "{row}");
    }
    true
}

/// What a way of `cost` or `load` needs.
fn needs(way: &str) -> &str {
    match way.split(['.', ':', ' ', ',']).next().unwrap_or_default() {
        "library" if way.ends_with("private memory") => "memfd",
        "library" => way.trim_start_matches("library: "),
        _ if way.contains("copy_file_range") || way.ends_with("c_f_r") => "copy_file_range",
        "module" if way.contains("slot") => "slot",
        "module" => "module",
        "LOAD" => way.split(' ').nth(1).unwrap_or_default(),
        "heap" | "normal" => "buffered",
        "series" => "heap",
        "udmabuf" | "sendfile" => "udmabuf",
        _ => "memfd",
    }
}

#[test]
fn cost_compares_every_byte_and_has_all_phases() {
    let cost = result("cost --sizes 4K,1M --runs 2");
    let icount = std::env::var_os("DMABUF_DIO_ICOUNT").is_some();
    assert_eq!(cost["unit"], if icount { "instructions" } else { "nanoseconds" });
    for row in rows(&cost) {
        let way = text(&row["way"]);
        let always = matches!(way, "malloc: read()" | "memfd: read()");
        if !has_figures(row, &["total"], 2, always || required(needs(way))) {
            continue;
        }
        let wanted: &[&str] = match way {
            _ if way == "heap: allocate" || way.contains("attach") => &["allocation", "close"],
            _ if way.contains("LOAD") || way.contains("flag") => &["load", "close"],
            _ if way.starts_with("library") || way.starts_with("udmabuf") => &["load", "close"],
            _ => &["allocation", "io", "close"],
        };
        let phases = ["allocation", "io", "load", "close"];
        let has: Vec<_> = phases.into_iter().filter(|phase| !row[phase].is_null()).collect();
        assert_eq!(has, wanted, "{row}");
        for run in 0..2 {
            let value = |phase: &str| values(row, phase).expect("a figure")[run];
            let sum: f64 = wanted.iter().map(|phase| value(phase)).sum();
            assert!((sum - value("total")).abs() < 1.0 && sum > 0.0, "{row}");
        }
    }
}

#[test]
fn load_moves_every_byte_and_restores_settings() {
    let gather = || std::fs::read_to_string("/sys/module/dma_heap/parameters/read_gather").ok();
    let before = gather();
    let load = result("load --sizes 64K,600K --buffers 3 --runs 2");
    assert_eq!(gather(), before);
    assert_eq!((rows(&load).len(), &load["buffers"]), (2 * 14, &3.into()));
    for row in rows(&load) {
        let must = required(needs(text(&row["way"])));
        has_figures(row, &["total_ms", "total_cpu_ms", "close_ms"], 2, must);
    }
}

#[test]
fn small_reads_are_compared() {
    let small =
        |more: &str| result(&format!("small --size 1M --depths 1,8 --reads 200 --runs 2 {more}"));
    let all = small("");
    assert_eq!((rows(&all).len(), &all["reads"]), (2 * 14, &200.into()));
    for row in rows(&all) {
        let polled = text(&row["way"]).ends_with("polled");
        let must = row["by"] == "us" && !polled && (row["memory"] != "lent" || required("slot"));
        has_figures(row, &["iops", "per_read"], 2, must);
    }
    assert_eq!(rows(&small("--only libaio --no-fio")).len(), 2);
    let grown = small("--append-every 10");
    assert_eq!((rows(&grown).len(), &grown["append_every"]), (2 * 7, &10.into()));
    has_figures(&rows(&grown)[0], &["per_read"], 2, true);
}

#[test]
fn small_reads_of_a_block_device_are_compared() {
    let Ok(device) = std::env::var("DMABUF_DIO_RAW_DISK") else { return };
    let bytes: Vec<u8> =
        (0..1 << 20).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    std::fs::write(&device, &bytes).expect("fill the disk");
    let raw = format!("small --on {device} --size 1M --depths 16 --reads 300 --runs 1 --no-fio");
    for row in rows(&result(&format!("{raw} --only 'raw, io_uring, '"))) {
        has_figures(row, &["iops"], 1, row["memory"] != "lent" || required("slot"));
    }
    assert!(std::fs::read(&device).expect("read")[..1 << 20] == bytes, "nothing is written");
}

#[test]
fn misuse_has_its_exit_code() {
    let folder = folder();
    for (code, arguments) in [
        (3, "load --only 'memfd direct' --runs 1 --sizes 1T,16T"),
        (2, "load --sizes 5000"),
        (2, "load --sizes 8M,"),
        (2, "load --buffers 0"),
        (2, "load --runs 0"),
        (2, "load --sizes 64K --only 'no such row'"),
        (2, "compare --peer 'no command'"),
        (2, "small --depths 0"),
        (2, "nothing"),
    ] {
        let output = bench(&folder, arguments);
        let printed = String::from_utf8_lossy(&output.stdout);
        let lacks = if code == 3 { 2 } else { 0 };
        let seen = (output.status.code(), printed.matches("do not fit").count());
        assert_eq!(seen, (Some(code), lacks), "{arguments}");
    }
}
