// SPDX-License-Identifier: MIT OR Apache-2.0
//! `compare`: every method of this program, and a program of somebody else.

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::{bench, folder, has_figure, required, result, rows, text, values};

/// A loader as others write them: it says when it is ready, waits, reads, reports.
const PEER: &str = r#"sh -c '
    test "$2" = --verify && verified=true || verified=null
    echo "{\"ready\": true}"; read line
    bytes=$(wc -c < "$1")
    echo "{\"seconds\": 0.5, \"cpu_seconds\": 0.1, \"bytes\": $bytes,
        \"verified\": $verified}" | tr -d "\n"; echo' peer"#;

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

#[test]
fn compare_loads_every_byte_in_every_way() {
    let before = settings();
    let peer = format!("other={PEER}");
    let broken = ["--peer", "broken=echo not installed >&2; exit 1;", "--peer", "silent=true"];
    let arguments = ["compare", "--sizes", "1M", "--runs", "2", "--tensors", "many"];
    let compare = result(&folder(), &[&arguments[..], &["--peer", &peer], &broken].concat());
    assert_eq!(settings(), before);
    for row in
        rows(&compare).iter().filter(|row| !["broken", "silent"].contains(&text(&row["way"])))
    {
        let way = text(&row["way"]);
        let must = ["dmabuf-dio memfd", "read() into malloc", "read() into memfd", "other"]
            .contains(&way)
            || required(way.trim_start_matches("dmabuf-dio "));
        if has_figure(row, "seconds", 2, must) {
            assert!(values(row, "cpu_seconds").is_some());
        }
    }
    let row = |name: &str| rows(&compare).iter().find(|row| row["way"] == name).expect("a row");
    assert_eq!(row("other")["seconds"], json!([0.5, 0.5]));
    assert_eq!(row("broken")["unavailable"], "not installed");
    assert!(text(&row("silent")["unavailable"]).contains("silent"));
}

#[test]
fn compare_runs_processes_at_once_and_without_fio() {
    let arguments = ["compare", "--sizes", "64K", "--runs", "1", "--processes", "3"];
    let some = ["--only", "dmabuf-dio memfd", "--only", "malloc"];
    let compare = result(&folder(), &[&arguments[..], &some].concat());
    assert_eq!(compare["processes"], 3);
    let malloc = rows(&compare).iter().find(|row| row["way"] == "read() into malloc");
    has_figure(malloc.expect("a row"), "seconds", 5, true);
}

#[test]
fn compare_reports_a_wrong_byte() {
    let folder = folder();
    let lies = PEER.replace("verified=true", "verified=false");
    let peer = format!("wrong={lies}");
    let arguments = ["compare", "--sizes", "64K", "--runs", "1", "--only", "wrong"];
    let output = bench(&folder, &[&arguments[..], &["--peer", &peer]].concat());
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("different: "), "{output:?}");

    // And one of our own does, of a file that holds something else.
    let file = folder.path().join("zeroes");
    std::fs::write(&file, [0; 8192]).expect("write");
    for way in ["dmabuf-dio memfd", "read() into malloc", "mmap, read-ahead as found"] {
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
