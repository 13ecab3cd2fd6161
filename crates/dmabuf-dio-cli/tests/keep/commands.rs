// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command, and programs that get what is kept.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

use super::common::{folder, program};

/// A folder on a tmpfs; `None` if there is none.
fn tmpfs() -> Option<TempDir> {
    let on = |place: &str| {
        rustix::fs::statfs(place).is_ok_and(|found| found.f_type as u32 == 0x0102_1994)
    };
    let folder = ["/dev/shm", "/run"].into_iter().find(|place| on(place));
    let folder = folder.and_then(|place| tempfile::Builder::new().tempdir_in(place).ok());
    if folder.is_none() {
        println!("skipped: no tmpfs that can be written");
    }
    folder
}

fn with(kept: &Path) -> Command {
    let mut command = program();
    command.env("DMABUF_DIO_KEEP", kept);
    command
}

fn text(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn kept_file_has_the_name_of_its_source() {
    let (Some(kept), disk) = (tmpfs(), folder()) else { return };
    let source = disk.path().join("weights.gguf");
    fs::write(&source, "content".repeat(1000)).expect("a source");
    let output = with(kept.path()).arg("keep").arg(format!("m={}", source.display())).output();
    let (out, err) = text(&output.expect("started"));
    assert!(out.contains("7000 bytes") && out.contains("loaded"), "{out}{err}");

    let script = "case $0 in */weights.gguf) ;; *) exit 5 ;; esac; cat \"$0\"";
    let load = ["load", "keep:m", "--quiet", "--", "sh", "-c", script, "{}"];
    let output = with(kept.path()).args(load).output().expect("started");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(output.stdout, fs::read(&source).expect("read"));

    // The descriptor, and a range of it
    let script =
        "test $DMABUF_DIO_LEN = 7 && dd bs=1 skip=$DMABUF_DIO_OFFSET count=7 <&$DMABUF_DIO_FD";
    let load = ["load", "keep:m", "--offset", "7", "--length", "7", "--", "sh", "-c", script];
    let output = with(kept.path()).args(load).output().expect("started");
    assert_eq!(output.stdout, b"content", "{output:?}");
    // The command saves what it inherited.
    let (copy, own) = (disk.path().join("copy"), env!("CARGO_BIN_EXE_dmabuf-dio"));
    let output = with(kept.path())
        .args(["load", "keep:m", "--", own, "save"])
        .arg(&copy)
        .output()
        .expect("started");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(fs::read(&copy).expect("read"), fs::read(&source).expect("read"));
    // Memory of its own is loaded from what is kept.
    let load = ["load", "keep:m", "--kind", "private", "--verify"];
    let (out, err) = text(&with(kept.path()).args(load).output().expect("started"));
    assert!(out.contains("identical"), "{out}{err}");
}

#[test]
fn kept_folder_and_its_files_are_opened_by_path() {
    let (Some(kept), disk) = (tmpfs(), folder()) else { return };
    let source = disk.path().join("model");
    fs::create_dir(&source).expect("a folder");
    fs::write(source.join("config.json"), "{}").expect("a source");
    let keep = format!("m={}", source.display());
    assert!(with(kept.path()).args(["keep", &keep]).status().expect("started").success());
    for (path, place) in [("keep:m", "{}/config.json"), ("keep:m/config.json", "{}")] {
        let output = with(kept.path()).args(["load", path, "--", "cat", place]).output();
        assert_eq!(output.expect("started").stdout, b"{}", "{path}");
    }
    let (_, err) =
        text(&with(kept.path()).args(["load", "keep:m", "--", "true"]).output().expect("started"));
    assert!(err.contains("a folder can only be loaded"), "{err}");
}

#[test]
fn list_has_what_is_kept() {
    let (Some(kept), disk) = (tmpfs(), folder()) else { return };
    let source = disk.path().join("s");
    fs::write(&source, "x").expect("a source");
    let (out, _) = text(&with(kept.path()).arg("keep").output().expect("started"));
    assert!(out.contains("nothing is kept"), "{out}");
    let keep = ["a", "b"].map(|name| format!("{name}={}", source.display()));
    let output = with(kept.path()).args(["keep", "--json"]).args(keep).output().expect("started");
    let made: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(made["kept"][1]["loaded"], true, "{made}");
    let output = with(kept.path()).args(["keep", "--json"]).output().expect("started");
    let list: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let names: Vec<_> =
        list["kept"].as_array().expect("a list").iter().map(|one| &one["name"]).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(list["kept"][0]["source"], source.display().to_string());
    let (out, _) = text(&with(kept.path()).arg("keep").output().expect("started"));
    assert_eq!(out.lines().count(), 2, "{out}");
}

#[test]
fn wrong_requests_are_errors_with_hints() {
    let (Some(kept), disk) = (tmpfs(), folder()) else { return };
    let source = disk.path().join("s");
    fs::write(&source, "x").expect("a source");
    let run = |words: &[&str]| {
        let output = with(kept.path()).args(words).output().expect("started");
        (output.status.code(), text(&output).1)
    };
    let good = format!("a={}", source.display());
    assert_eq!(run(&["keep", "--quiet", &good]).0, Some(0));
    for (words, code, said) in [
        (&["keep", "a"][..], 2, "NAME=SOURCE"),
        (&["keep", "../a=b"], 2, "has a /"),
        (&["keep", "=b"], 2, "empty"),
        (&["keep", "x=/nowhere"], 1, "check the path"),
        (&["keep", "x=/dev/null"], 1, "neither a regular file nor a folder"),
        (&["load", "keep:x"], 1, "nothing is kept as x"),
        (&["load", "keep:../x"], 2, "begins with a dot"),
        (&["load", "keep:a", "--offset", "1", "--", "cat", "{}"], 2, "leave out --offset"),
        (&["load", "keep:a", "--verify", "--", "cat", "{}"], 2, "cmp"),
        (&["load", "keep:a", "--offset", "9", "--", "true"], 1, "exceeds"),
    ] {
        let (found, text) = run(words);
        assert!(found == Some(code) && text.contains(said), "{words:?}: {found:?}: {text}");
    }
}
