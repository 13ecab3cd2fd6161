// SPDX-License-Identifier: MIT OR Apache-2.0
//! `compare`: every method of this program, and a program of somebody else.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::{bench, folder, has_figures, program, required, result, rows, text};

/// A loader as others write them: it says when it is ready, waits, reads, reports.
const PEER: &str = r#"
    test "$2" = --verify && verified=true || verified=null
    echo '{"ready": true}'; read line
    echo "{\"seconds\": 0.5, \"cpu_seconds\": 0.1, \"bytes\": $(wc -c < "$1"), \"verified\": $verified, \"note\": null}"
"#;

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

fn script(folder: &Path, text: &str) -> String {
    let path = folder.join("peer");
    std::fs::write(&path, text).expect("written");
    format!("sh {}", path.display())
}

#[test]
fn compare_loads_every_byte_in_every_way() {
    let (before, other) = (settings(), folder());
    let peer = script(other.path(), PEER);
    let broken = "--peer 'broken=echo not installed >&2; exit 1;' --peer silent=true";
    let compare = result(&format!(
        "compare --sizes 1M --runs 2 --tensors many --peer 'other={peer}' {broken}"
    ));
    assert_eq!(settings(), before);
    let row = |name: &str| rows(&compare).iter().find(|row| row["way"] == name).expect("a row");
    assert_eq!(row("other")["seconds"], json!([0.5, 0.5]));
    assert_eq!(row("broken")["unavailable"], "not installed");
    assert!(text(&row("silent")["unavailable"]).contains("silent"));
    for row in rows(&compare).iter().filter(|row| row["way"] != "broken" && row["way"] != "silent")
    {
        let way = text(&row["way"]);
        let must = ["dmabuf-dio memfd", "read() into malloc", "read() into memfd"].contains(&way)
            || required(way.trim_start_matches("dmabuf-dio "));
        has_figures(row, &["seconds", "cpu_seconds"], 2, must);
    }
}

#[test]
fn compare_runs_processes_at_once_and_without_fio() {
    let compare = result(
        "compare --sizes 64K --runs 1 --processes 3 --only 'dmabuf-dio memfd' --only malloc",
    );
    assert_eq!(compare["processes"], 3);
    let malloc = rows(&compare).iter().find(|row| row["way"] == "read() into malloc");
    has_figures(malloc.expect("a row"), &["seconds"], 5, true);
}

#[test]
fn compare_reports_a_wrong_byte() {
    let folder = folder();
    let peer = script(folder.path(), &PEER.replace("verified=true", "verified=false"));
    let arguments = format!("compare --sizes 64K --runs 1 --only wrong --peer 'wrong={peer}'");
    let output = bench(&folder, &arguments);
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("different: "), "{output:?}");

    // And one of our own does, of a file that holds something else.
    let (file, line) = (folder.path().join("zeroes"), folder.path().join("line"));
    std::fs::write(&file, [0; 8192]).expect("write");
    std::fs::write(&line, "\n").expect("write");
    for way in ["dmabuf-dio memfd", "read() into malloc", "mmap, read-ahead as found"] {
        let mut child = program("compare-way --tensors few --verify 5 --way");
        child.arg(way).arg(&file).stdin(std::fs::File::open(&line).expect("a file"));
        let output = child.output().expect("run dmabuf-dio-bench");
        let printed = String::from_utf8_lossy(&output.stdout);
        let told: Value =
            serde_json::from_str(printed.lines().last().expect("a line")).expect("JSON");
        assert_eq!((&told["verified"], &told["bytes"]), (&false.into(), &8192.into()), "{way}");
    }
}

#[test]
fn interrupted_compare_leaves_nothing_behind() {
    let (folder, other, before) = (folder(), folder(), settings());
    // The peer is the last contender of the first run, and the benchmark waits for it.
    let started = other.path().join("started");
    let ready = format!("touch {}; echo '{{\"ready\":true}}'; sleep 1000", started.display());
    let peer = script(other.path(), &ready);
    let mut child =
        program(&format!("compare --keep-caches --sizes 64K --runs 99 --peer 'slow={peer}' --dir"));
    child.arg(folder.path()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = child.spawn().expect("run dmabuf-dio-bench");
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
