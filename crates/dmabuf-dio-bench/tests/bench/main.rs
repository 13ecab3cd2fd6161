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

fn bench(folder: &TempDir, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dmabuf-dio-bench"))
        .args(arguments)
        .args(["--keep-caches", "--dir"])
        .arg(folder.path())
        .env("DMABUF_DIO_COMMIT", "abc")
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .output()
        .expect("run dmabuf-dio-bench")
}

/// The result, of which nothing else is left behind.
#[track_caller]
fn result(folder: &TempDir, arguments: &[&str]) -> Value {
    let output = bench(folder, &[arguments, &["--output", "result"]].concat());
    let path = folder.path().join("result");
    // Without any dma-buf no way of `load` may be measured.
    let nothing = output.status.code() == Some(3) && arguments[0] == "load" && !required("udmabuf");
    assert!(output.status.success() || nothing, "{arguments:?}: {output:?}");
    let result: Value =
        serde_json::from_slice(&std::fs::read(&path).expect("the result")).expect("JSON");
    std::fs::remove_file(path).expect("removed");
    assert_eq!(std::fs::read_dir(folder.path()).expect("list").count(), 0, "nothing is left");
    assert_eq!((&result["bench"], &result["commit"]), (&arguments[0].into(), &"abc".into()));
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

/// A row has this figure for so many runs, or says why not. `must` says that it has to have it.
#[track_caller]
fn has_figure(row: &Value, figure: &str, runs: usize, must: bool) -> bool {
    if let Some(reason) = row["unavailable"].as_str() {
        assert!(!must && reason.len() > 20, "this kernel must offer it: {row}");
        return false;
    }
    assert_eq!(values(row, figure).expect("a figure").len(), runs, "{row}");
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
    let cost = result(&folder(), &["cost", "--sizes", "4K,1M", "--runs", "2"]);
    let icount = std::env::var_os("DMABUF_DIO_ICOUNT").is_some();
    assert_eq!(cost["unit"], if icount { "instructions" } else { "nanoseconds" });
    for row in rows(&cost) {
        let way = text(&row["way"]);
        let always = matches!(way, "malloc: read()" | "memfd: read()");
        if !has_figure(row, "total", 2, always || required(needs(way))) {
            continue;
        }
        let phases = ["allocation", "io", "load"].map(|phase| !row[phase].is_null());
        let wanted = match way {
            "heap: allocate" => [true, false, false],
            _ if way.contains("attach") => [true, false, false],
            _ if way.contains("LOAD") || way.contains("flag") => [false, false, true],
            _ if way.starts_with("library") || way.starts_with("udmabuf") => [false, false, true],
            _ => [true, true, false],
        };
        assert_eq!(phases, wanted, "{row}");
        for run in 0..2 {
            let value = |phase: &str| values(row, phase).map(|values| values[run]);
            let parts = ["allocation", "io", "load", "close"].into_iter().filter_map(value);
            let total = value("total").expect("a total");
            assert!((parts.sum::<f64>() - total).abs() < 1.0 && total > 0.0, "{row}");
        }
    }
}

#[test]
fn load_moves_every_byte_and_restores_settings() {
    let gather = || std::fs::read_to_string("/sys/module/dma_heap/parameters/read_gather").ok();
    let before = gather();
    let arguments = ["load", "--sizes", "64K,600K", "--buffers", "3", "--runs", "2"];
    let load = result(&folder(), &arguments);
    assert_eq!(gather(), before);
    assert_eq!((rows(&load).len(), &load["buffers"]), (2 * 14, &3.into()));
    for row in rows(&load) {
        if has_figure(row, "total_ms", 2, required(needs(text(&row["way"])))) {
            assert!(values(row, "total_cpu_ms").is_some() && values(row, "close_ms").is_some());
        }
    }
}

#[test]
fn small_reads_are_compared() {
    let folder = folder();
    let common = ["small", "--size", "1M", "--depths", "1,8", "--reads", "200", "--runs", "2"];
    let small = result(&folder, &common);
    assert_eq!((rows(&small).len(), &small["reads"]), (2 * 14, &200.into()));
    for row in rows(&small) {
        let polled = text(&row["way"]).ends_with("polled");
        let must = row["by"] == "us" && !polled && (row["memory"] != "lent" || required("slot"));
        if has_figure(row, "iops", 2, must) {
            has_figure(row, "per_read", 2, true);
        }
    }
    let some = result(&folder, &[&common[..], &["--only", "libaio", "--no-fio"]].concat());
    assert_eq!(rows(&some).len(), 2);
    let grown = result(&folder, &[&common[..], &["--append-every", "10"]].concat());
    assert_eq!((rows(&grown).len(), &grown["append_every"]), (2 * 7, &10.into()));
    has_figure(&rows(&grown)[0], "per_read", 2, true);
}

#[test]
fn small_reads_of_a_block_device_are_compared() {
    let Ok(device) = std::env::var("DMABUF_DIO_RAW_DISK") else { return };
    let bytes: Vec<u8> =
        (0..1 << 20).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    std::fs::write(&device, &bytes).expect("fill the disk");
    let on = ["small", "--on", &device, "--size", "1M", "--depths", "16", "--reads", "300"];
    let more = ["--runs", "1", "--no-fio", "--only", "raw, io_uring, "];
    for row in rows(&result(&folder(), &[&on[..], &more].concat())) {
        has_figure(row, "iops", 1, row["memory"] != "lent" || required("slot"));
    }
    assert!(std::fs::read(&device).expect("read")[..1 << 20] == bytes, "nothing is written");
}

#[test]
fn too_large_size_is_left_out() {
    let folder = folder();
    let load = ["load", "--only", "memfd direct", "--runs", "1"];
    let output = bench(&folder, &[&load[..], &["--sizes", "1T,16T"]].concat());
    let printed = String::from_utf8_lossy(&output.stdout);
    assert_eq!((output.status.code(), printed.matches("do not fit").count()), (Some(3), 2));
}

#[test]
fn wrong_usage_exits_with_2() {
    let folder = folder();
    for arguments in [
        &["load", "--sizes", "5000"][..],
        &["load", "--sizes", "8M,"],
        &["load", "--buffers", "0"],
        &["load", "--runs", "0"],
        &["load", "--sizes", "64K", "--only", "no such row"],
        &["compare", "--peer", "no command"],
        &["small", "--depths", "0"],
        &["nothing"],
    ] {
        assert_eq!(bench(&folder, arguments).status.code(), Some(2), "{arguments:?}");
    }
}
