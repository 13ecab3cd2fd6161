// SPDX-License-Identifier: MIT OR Apache-2.0
//! `compare`: every method of this program, and a program of somebody else.

use std::process::{Command, Stdio};

use serde_json::Value;

use super::{bench, folder, is_summary, json, list, ok, required, text};

/// A loader as others write them: it says when it is ready, waits, reads, reports.
const PEER: &str = r#"sh -c '
    test "$2" = --verify && verified=true || verified=null
    echo "{\"ready\": true}"; read line
    bytes=$(wc -c < "$1")
    echo "{\"seconds\": 0.5, \"user_seconds\": 0.1, \"sys_seconds\": 0.1, \"release_seconds\": null,
        \"bytes\": $bytes, \"verified\": $verified, \"version\": \"7.1\", \"note\": \"a note\"}" |
        tr -d "\n"; echo' peer"#;

/// What `compare` may set, and only while it measures.
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
fn compare_runs_processes_at_once_and_without_fio() {
    let folder = folder();
    let arguments = ["compare", "--sizes", "64K", "--runs", "1", "--ways", "memfd,read-malloc"];
    let printed = ok(&folder, &[&arguments[..], &["--processes", "3"]].concat());
    assert!(printed.lines().all(|line| line.chars().count() <= 100), "{printed}");
    assert!(printed.contains("3 processes at once, runs: 5"), "{printed}");
    assert!(printed.contains("of read"), "small files are compared with read(): {printed}");

    let output = Command::new(env!("CARGO_BIN_EXE_dmabuf-dio-bench"))
        .args(["compare", "--sizes", "1M", "--runs", "1", "--ways", "read-malloc"])
        .args(["--keep-caches", "--json", "--dir"])
        .arg(folder.path())
        .env("PATH", folder.path())
        .output()
        .expect("run dmabuf-dio-bench");
    let compare: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(compare["fio"], Value::Null);
    let base = &compare["sizes"][0]["base"];
    assert_eq!((&base["name"], &base["is_ceiling"]), (&"read() into malloc".into(), &false.into()));
}

#[test]
fn compare_reports_a_wrong_byte() {
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
        let mut child = Command::new(env!("CARGO_BIN_EXE_dmabuf-dio-bench"))
            .args(["compare-way", "--way", way, "--tensors", "few", "--verify", "5"])
            .arg(&file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("run dmabuf-dio-bench");
        drop(child.stdin.take().map(|mut stdin| std::io::Write::write_all(&mut stdin, b"\n")));
        let output = child.wait_with_output().expect("wait");
        let printed = String::from_utf8_lossy(&output.stdout);
        let told: Value =
            serde_json::from_str(printed.lines().last().expect("a line")).expect("JSON");
        assert_eq!((&told["verified"], &told["bytes"]), (&false.into(), &8192.into()), "{way}");
    }
}

#[test]
fn interrupted_compare_leaves_nothing_behind() {
    let folder = folder();
    let before = settings();
    // The peer is the last contender of the first run, and the benchmark waits for it.
    let other = crate::folder();
    let started = other.path().join("started");
    let ready = "echo \\{\\\"ready\\\":true\\}";
    let peer = format!("slow=touch {}; {ready}; sleep 1000; :", started.display());
    let mut child = Command::new(env!("CARGO_BIN_EXE_dmabuf-dio-bench"))
        .args(["compare", "--keep-caches", "--sizes", "64K", "--runs", "99"])
        .args(["--peer", &peer, "--dir"])
        .arg(folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("run dmabuf-dio-bench");
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
