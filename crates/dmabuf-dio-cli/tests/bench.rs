// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio bench`, as a user types it.
//!
//! `DMABUF_DIO_REQUIRE` names what a guest has to offer: rows that need only that must have
//! figures.

mod common;

use std::process::{Command, Output, Stdio};

use common::folder;
use serde_json::Value;
use tempfile::TempDir;

const READ_GATHER: &str = "/sys/module/dma_heap/parameters/read_gather";

fn bench(folder: &TempDir, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dmabuf-dio"))
        .arg("bench")
        .args(arguments)
        .arg("--keep-caches")
        .arg("--dir")
        .arg(folder.path())
        .env("DMABUF_DIO_COMMIT", "abc")
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
    for fact in ["kernel", "machine", "file_system", "caches_dropped_by"] {
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
    let arguments = ["cost", "--sizes", "4K,1M", "--runs", "2"];
    let cost = json(&folder, &arguments);
    assert_eq!((&cost["schema"], &cost["commit"]), (&1.into(), &"abc".into()));
    let icount = std::env::var_os("DMABUF_DIO_ICOUNT").is_some();
    assert_eq!(cost["unit"], if icount { "instructions" } else { "nanoseconds" });
    let sizes = list(&cost["sizes"]);
    assert_eq!([&sizes[0]["per"], &sizes[1]["per"]], ["transfer", "MiB"]);
    for way in sizes.iter().flat_map(|size| list(&size["ways"])) {
        let (from, name) = text(&way["name"]).split_once(": ").expect("two parts");
        let must = match (from, name) {
            ("malloc", _) | ("memfd", "read()") => true,
            ("memfd, faulted in", _) | ("library", "private memory") => required("memfd"),
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

/// A loader as others write them: it says when it is ready, waits, reads, reports.
const PEER: &str = r#"sh -c '
    test "$2" = --verify && verified=true || verified=null
    echo "{\"ready\": true}"; read line
    bytes=$(wc -c < "$1")
    echo "{\"seconds\": 0.5, \"user_seconds\": 0.1, \"sys_seconds\": 0.1, \"release_seconds\": null,
        \"bytes\": $bytes, \"verified\": $verified, \"version\": \"7.1\", \"note\": \"a note\"}" |
        tr -d "\n"; echo' peer"#;

/// What `bench compare` may set, and only while it measures.
const SETTINGS: [&str; 3] = [
    "/proc/sys/vm/nr_overcommit_hugepages",
    "/proc/sys/vm/nr_hugepages",
    "/sys/kernel/mm/transparent_hugepage/shmem_enabled",
];

/// The settings while nobody who locks them has changed them.
fn settings() -> Vec<Option<String>> {
    let read = |path| {
        let file = std::fs::File::open(path).ok()?;
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).ok()?;
        std::fs::read_to_string(path).ok()
    };
    SETTINGS.into_iter().map(read).collect()
}

fn row<'a>(size: &'a Value, name: &str) -> &'a Value {
    let row = list(&size["rows"]).iter().find(|row| row["name"] == name);
    row.unwrap_or_else(|| panic!("no {name}: {size}"))
}

#[test]
fn compare_loads_every_byte_in_every_way() {
    let folder = folder();
    let before = settings();
    let peer = format!("other={PEER}");
    let arguments = [
        "compare",
        "--sizes",
        "1M",
        "--runs",
        "2",
        "--verify",
        "--tensors",
        "many",
        "--peer",
        &peer,
        "--peer",
        "broken=echo not installed >&2; exit 1;",
        "--peer",
        "silent=true",
    ];
    let compare = json(&folder, &arguments);
    assert_eq!(settings(), before);
    assert_eq!((&compare["schema"], &compare["bench"]), (&1.into(), &"compare".into()));
    assert!(text(&compare["content"]).contains("0x9e3779b97f4a7c15"));
    let size = &compare["sizes"][0];
    assert_eq!((&size["bytes"], list(&size["seeds"]).len()), (&(1 << 20).into(), 1));
    for row in list(&size["rows"]) {
        if row["status"] == "verified" {
            for figure in ["seconds", "gb_per_s", "user_seconds", "sys_seconds"] {
                is_summary(&row[figure], 2);
            }
            assert!(row["ratio"].as_f64().expect("a base") > 0.0, "{row}");
        } else {
            let must = row["id"]
                .as_str()
                .is_some_and(|id| required(if id == "read-dmabuf" { "buffered" } else { id }));
            assert!(row["status"] == "unavailable" && !must, "{row}");
            assert!(!text(&row["reason"]).is_empty(), "{row}");
        }
    }
    for name in ["dmabuf-dio memfd", "read() into malloc", "read() into memfd", "other"] {
        assert_eq!(row(size, name)["status"], "verified", "works everywhere");
    }
    let other = row(size, "other");
    assert_eq!(other["seconds"]["values"], serde_json::json!([0.5, 0.5]));
    assert_eq!((&other["version"], &other["notes"][0]), (&"7.1".into(), &"a note".into()));
    assert_eq!(row(size, "broken")["reason"], "not installed");
    assert!(text(&row(size, "silent")["reason"]).contains("silent"));
    let growth = |name: &str| row(size, name)["cache_growth"]["median"].as_f64();
    if let Some(growth) = growth("read() into malloc") {
        assert!(growth >= f64::from(1 << 20), "through the page cache");
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("list").count(), 0, "nothing is left");
}

#[test]
fn compare_at_once_and_without_fio() {
    let folder = folder();
    let arguments = ["compare", "--sizes", "64K", "--runs", "1", "--ways", "memfd,read-malloc"];
    let printed = ok(&folder, &[&arguments[..], &["--processes", "3"]].concat());
    assert!(printed.lines().all(|line| line.chars().count() <= 100), "{printed}");
    assert!(printed.contains("3 processes at once, runs: 5"), "{printed}");
    assert!(printed.contains("of read"), "small files are compared with read(): {printed}");

    let output = Command::new(env!("CARGO_BIN_EXE_dmabuf-dio"))
        .args(["bench", "compare", "--sizes", "1M", "--runs", "1", "--ways", "read-malloc"])
        .args(["--keep-caches", "--json", "--dir"])
        .arg(folder.path())
        .env("PATH", folder.path())
        .output()
        .expect("run dmabuf-dio");
    let compare: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(compare["fio"], Value::Null);
    let base = &compare["sizes"][0]["base"];
    assert_eq!((&base["name"], &base["is_ceiling"]), (&"read() into malloc".into(), &false.into()));
}

#[test]
fn compare_tells_a_wrong_byte() {
    let folder = folder();
    let lies = PEER.replace("verified=true", "verified=false");
    let peer = format!("wrong={lies}");
    let arguments = ["compare", "--sizes", "64K", "--runs", "1", "--ways", "read-malloc"];
    let output = bench(&folder, &[&arguments[..], &["--peer", &peer]].concat());
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("WRONG CONTENT"), "{output:?}");

    // And one of our own does, of a file that holds something else.
    let file = folder.path().join("zeroes");
    std::fs::write(&file, [0; 8192]).expect("write");
    for way in ["memfd", "read-malloc", "read-memfd", "mmap", "pread-1m"] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_dmabuf-dio"))
            .args(["bench", "compare-way", "--way", way, "--tensors", "few", "--verify", "5"])
            .arg(&file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("run dmabuf-dio");
        drop(child.stdin.take().map(|mut stdin| std::io::Write::write_all(&mut stdin, b"\n")));
        let output = child.wait_with_output().expect("wait");
        let printed = String::from_utf8_lossy(&output.stdout);
        let told: Value =
            serde_json::from_str(printed.lines().last().expect("a line")).expect("JSON");
        assert_eq!((&told["verified"], &told["bytes"]), (&false.into(), &8192.into()), "{way}");
    }
}

#[test]
fn compare_leaves_nothing_when_it_is_interrupted() {
    let folder = folder();
    let before = settings();
    // The peer is the last way of the first run, and the bench waits for it.
    let other = common::folder();
    let started = other.path().join("started");
    let ready = "echo \\{\\\"ready\\\":true\\}";
    let peer = format!("slow=touch {}; {ready}; sleep 1000; :", started.display());
    let mut child = Command::new(env!("CARGO_BIN_EXE_dmabuf-dio"))
        .args(["bench", "compare", "--keep-caches", "--sizes", "64K", "--runs", "99"])
        .args(["--peer", &peer, "--dir"])
        .arg(folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("run dmabuf-dio");
    while !started.exists() {
        assert!(child.try_wait().expect("wait").is_none(), "it ended by itself");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("list").count(), 1, "the file");
    let killed = Command::new("kill").arg(child.id().to_string()).status().expect("kill");
    assert!(killed.success());
    assert_eq!(child.wait().expect("wait").code(), Some(128 + 15));
    assert_eq!(settings(), before);
    assert_eq!(std::fs::read_dir(folder.path()).expect("list").count(), 0, "nothing is left");
}

#[test]
fn small_reads_are_compared() {
    let folder = folder();
    let common = ["small", "--size", "1M", "--depths", "1,8", "--reads", "200", "--runs", "2"];
    let small = json(&folder, &common);
    assert_eq!((&small["schema"], &small["bench"]), (&1.into(), &"small".into()));
    assert_eq!((&small["reads"], &small["size"]), (&200.into(), &(1 << 20).into()));
    let lines = list(&small["lines"]);
    assert_eq!(lines.len(), 14);
    for line in lines {
        let (way, memory, by) = (text(&line["way"]), text(&line["memory"]), text(&line["by"]));
        let points = list(&line["points"]);
        assert_eq!([&points[0]["depth"], &points[1]["depth"]], [1, 8]);
        for point in points {
            let polled = way.ends_with("polled");
            let must = by == "us" && !polled && (memory != "lent" || required("slot"));
            if has_figures(point, must) {
                is_summary(&point["iops"], 2);
                is_summary(&point["per_read"], 2);
            }
        }
    }

    let some = json(&folder, &[&common[..], &["--only", "libaio", "--no-fio"]].concat());
    assert_eq!(list(&some["lines"]).len(), 1);
    assert_eq!(std::fs::read_dir(folder.path()).expect("list").count(), 0, "nothing is left");
}

#[test]
fn small_reads_of_a_block_device() {
    let Ok(device) = std::env::var("DMABUF_DIO_RAW_DISK") else { return };
    let folder = folder();
    let bytes: Vec<u8> =
        (0..1 << 20).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    std::fs::write(&device, &bytes).expect("fill the disk");
    let arguments = [
        "small",
        "--on",
        &device,
        "--size",
        "1M",
        "--depths",
        "16",
        "--reads",
        "300",
        "--runs",
        "1",
        "--no-fio",
        "--only",
        "raw, io_uring, ",
    ];
    let small = json(&folder, &arguments);
    for line in list(&small["lines"]) {
        assert_eq!(line["target"], "raw");
        has_figures(&line["points"][0], line["memory"] != "lent" || required("slot"));
    }
    assert!(std::fs::read(&device).expect("read")[..1 << 20] == bytes, "nothing is written");
}

#[test]
fn streams_are_compared() {
    let devices = std::fs::read_dir("/sys/bus/iio/devices");
    if devices.map_or(true, |mut devices| devices.next().is_none()) {
        println!("skipped: no simulated IIO device");
        return;
    }
    let folder = folder();
    let streams = json(&folder, &["stream", "--blocks", "16K,1M", "--total", "8M", "--runs", "1"]);
    assert_eq!((&streams["bench"], &streams["device"]), (&"stream".into(), &"stream-adc".into()));
    let rows = list(&streams["rows"]);
    assert_eq!(rows.len(), 14);
    for row in rows {
        // Without a USB function its rows say so.
        let measured = row["to"] != "usb";
        let status = if measured { "verified" } else { "unavailable" };
        assert_eq!(row["status"], status, "{row}");
        assert_eq!(row["per_mib"]["median"].as_f64().is_some_and(|cost| cost > 0.0), measured);
    }
    let page = ok(
        &folder,
        &[
            "stream",
            "--blocks",
            "64K",
            "--total",
            "1M",
            "--runs",
            "1",
            "--only",
            "dma-buf into a file",
        ],
    );
    assert!(page.contains("64 KiB dma-buf"), "{page}");
    assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 0, "left behind");
}
