// SPDX-License-Identifier: MIT OR Apache-2.0
//! Folders that commands open by path, and files that commands leave in them.

use std::fs;
use std::path::{Path, PathBuf};

use dmabuf_dio::{Backend, probe};
use serde_json::Value;

use crate::common::{self, file, folder, text};
use crate::{fails, load, model, ok, private, run, shell};

#[test]
fn loaded_folder_mirrors_the_original() {
    let folder = folder();
    let root = model(&folder);
    let script = "diff -r $1 $2 && find $1 -type l -lname '/proc/*' | wc -l && cat $DMABUF_DIO_FILES && echo $DMABUF_DIO_FD";
    let temporary = common::folder();
    let load_it = [text(&root), "--min-size", "1M", "--json"];
    let arguments = shell(&load_it, script, &["{}", text(&root)]);
    let output = load(&temporary, &arguments).env("DMABUF_DIO_FD", "77").output().expect("run");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(private(&temporary), [] as [PathBuf; 0]);
    let said = String::from_utf8(output.stdout).expect("text");
    let (count, list) = said.split_once('\n').expect("lines");
    assert_eq!(count, "2", "{said}");
    assert!(list.ends_with("}\n"), "several files have no DMABUF_DIO_FD: {said}");
    let list: Value = serde_json::from_str(list).expect("JSON");
    let report: Value = serde_json::from_slice(&output.stderr).expect("JSON");
    let given = report["path"].as_str().expect("a path");
    assert!(given.ends_with("/model"), "{given}");
    assert_eq!((report["schema"].as_u64(), report["linked"].as_u64()), (Some(1), Some(2)));
    assert_eq!(report["bytes"], 5_000_001 + (2 << 20) + 7);
    for (index, name) in ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
        .into_iter()
        .enumerate()
    {
        let (entry, file) = (&list["files"][index], &report["files"][index]);
        assert_eq!(entry["path"], format!("{given}/{name}"));
        assert_eq!(entry["length"], fs::metadata(root.join(name)).expect("stat").len());
        assert_eq!(entry["buffer"] == "dmabuf", file["dma_buf"] == true);
        assert_eq!(file["file"], text(&root.join(name)));
        assert_eq!(file["operation"], "load");
        assert_eq!(file["dma_buf"] == true, file["no_dma_buf"].is_null());
    }
    // With a slash, as shells complete it, and by other names
    for name in [format!("{}/", text(&root)), format!("{}/tokenizer/..", text(&root))] {
        let script = "diff -r $1 $2 && basename $1";
        let said = ok(&shell(&[&name, "--min-size", "1M"], script, &["{}", &name]));
        assert_eq!(said, "model\n", "{name}");
    }
}

/// They are loaded at the same time: each may fit alone.
#[test]
fn files_beyond_the_memory_of_a_node_are_refused_together() {
    let folder = folder();
    for name in ["one", "two"] {
        let file = fs::File::create(folder.path().join(name)).expect("create");
        file.set_len(3 << 40).expect("a sparse file");
    }
    if probe::available_memory_of(0).is_none() {
        return println!("skipped: there is no node 0");
    }
    let root = text(folder.path());
    let error = fails(1, &[root, "--numa", "0", "--", "true", "{}"]);
    assert!(error.contains("the files to load need") && error.contains("on node 0"), "{error}");
    assert!(fails(1, &[root, "--", "true", "{}"]).contains("are available\n"), "of all nodes");
}

/// The descriptors in the list are buffers with the content of the files.
#[test]
fn listed_buffers_are_inherited() {
    let folder = folder();
    let root = model(&folder);
    let script = "import json, mmap, os\n\
        for one in json.load(open(os.environ['DMABUF_DIO_FILES']))['files']:\n \
        n = one['length']; m = mmap.mmap(one['fd'], -(-n // mmap.PAGESIZE) * mmap.PAGESIZE if one['buffer'] == 'dmabuf' else n, mmap.MAP_SHARED, mmap.PROT_READ)\n \
        assert m[:n] == open(one['path'], 'rb').read() == open(one['file'], 'rb').read()\n \
        print(one['buffer'])";
    let said =
        ok(&[text(&root), "--min-size", "1M", "-q", "--", "python3", "-IS", "-c", script, "{}"]);
    let kinds: Vec<&str> = said.lines().collect();
    let expected = if probe::backend(Backend::Udmabuf).available { "dmabuf" } else { "memfd" };
    assert_eq!(kinds, [expected; 2]);
}

/// Hubs have one file under several names.
#[test]
fn a_file_with_several_names_is_loaded_once() {
    let folder = folder();
    let root = model(&folder);
    let first = "model-00001-of-00002.safetensors";
    std::os::unix::fs::symlink(first, root.join("link.safetensors")).expect("link");
    fs::create_dir(root.join("deep")).expect("a folder");
    fs::hard_link(root.join(first), root.join("deep/hard.safetensors")).expect("link");
    let temporary = common::folder();
    let script = "diff -r $1 $2 && cat $DMABUF_DIO_FILES";
    let arguments =
        [text(&root), "--min-size", "1M", "--json", "--verify", "--", "sh", "-c", script, "x"];
    let mut command = load(&temporary, &[&arguments[..], &["{}", text(&root)]].concat());
    let output = command.output().expect("run");
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stderr).expect("JSON");
    assert_eq!(report["bytes"], 5_000_001 + (2 << 20) + 7, "each file once");
    assert_eq!(report["files"].as_array().map(Vec::len), Some(2));
    let list: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let files = list["files"].as_array().expect("a list");
    assert_eq!(files.len(), 4, "every name: {list}");
    let of_first = |entry: &&Value| entry["length"] == report["files"][0]["bytes"];
    let same: Vec<_> = files.iter().filter(of_first).map(|entry| &entry["fd"]).collect();
    assert!(same.len() == 3 || files.len() - same.len() == 3, "{list}");
    for entry in files {
        let (path, file) = (entry["path"].as_str().expect("text"), entry["file"].as_str());
        assert!(path.ends_with(
            Path::new(file.expect("text")).file_name().expect("a name").to_str().expect("text")
        ));
    }
}

/// Names are bytes, and JSON is text.
#[test]
fn names_that_are_not_utf8_are_listed() {
    use std::os::unix::ffi::OsStrExt as _;
    let folder = folder();
    let root = folder.path().join("model");
    fs::create_dir(&root).expect("a folder");
    let odd = root.join(std::ffi::OsStr::from_bytes(b"caf\xe9.bin"));
    fs::write(&odd, vec![7; 100_000]).expect("write");
    fs::write(root.join("text.bin"), vec![8; 100_000]).expect("write");
    let script = "import json, os\n\
        one, other = json.load(open(os.environ['DMABUF_DIO_FILES']))['files']\n\
        path = bytes.fromhex(one['path_hex']); file = bytes.fromhex(one['file_hex'])\n\
        assert open(path, 'rb').read() == open(file, 'rb').read() == bytes([7]) * 100_000\n\
        assert os.path.basename(path) == b'caf\\xe9.bin'\n\
        assert 'path_hex' not in other and other['path'].endswith('/text.bin')";
    ok(&[text(&root), "-q", "--min-size", "1K", "--", "python3", "-IS", "-c", script, "{}"]);
}

#[test]
fn files_written_by_the_command_are_kept() {
    let folder = folder();
    let root = model(&folder);
    let temporary = common::folder();
    let arguments =
        [text(&root), "-q", "--min-size", "1M", "--", "sh", "-c", "echo result >$0/result", "{}"];
    let output = load(&temporary, &arguments).output().expect("run");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.contains("they were kept"), "{errors}");
    let left = private(&temporary);
    assert_eq!(fs::read(left[0].join("model/result")).expect("kept"), b"result\n");
    assert_eq!(fs::read_dir(left[0].join("model")).expect("list").count(), 1, "no link is left");
    assert!(!root.join("result").exists());
}

#[test]
fn private_folder_is_in_xdg_runtime_dir() {
    let folder = folder();
    let (path, _) = file(&folder, 5000);
    let (temporary, runtime) = (common::folder(), common::folder());
    let mut command = load(&temporary, &[text(&path), "-q", "--", "echo", "{}"]);
    let output = command.env("XDG_RUNTIME_DIR", runtime.path()).output().expect("run");
    let said = String::from_utf8(output.stdout).expect("text");
    assert!(said.starts_with(text(runtime.path())), "{said}");
    let mut command = load(&temporary, &[text(&path), "-q", "--", "echo", "{}"]);
    let output = command.env("XDG_RUNTIME_DIR", "/nowhere").output().expect("run");
    let said = String::from_utf8(output.stdout).expect("text");
    assert!(said.starts_with(text(temporary.path())), "{said}");
    let mut command = load(&temporary, &[text(&path), "-q", "--", "echo", "{}"]);
    let output = command.env("TMPDIR", "/nowhere").output().expect("run");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        errors.contains("/nowhere: cannot create a folder") && errors.contains("TMPDIR="),
        "{errors}"
    );
    // An empty variable names no folder, in particular not the one that the user is in.
    let mut command = load(&temporary, &[text(&path), "-q", "--", "echo", "{}"]);
    command.env("TMPDIR", "").env("XDG_RUNTIME_DIR", "").current_dir(folder.path());
    let said = String::from_utf8(command.output().expect("run").stdout).expect("text");
    assert!(said.starts_with("/tmp/dmabuf-dio-path-"), "{said}");
}

#[test]
fn loaded_folder_is_verified() {
    let folder = folder();
    let root = model(&folder);
    let output = run(&[text(&root), "--min-size", "1M", "--verify", "--", "true", "{}"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("verified: identical"), "{said}");
    assert!(said.contains("2 of 4 entries in memory, "), "{said}");
    assert!(
        said.lines().any(|line| line.starts_with("path: ") && line.ends_with("/model")),
        "{said}"
    );
    let output = run(&[text(&root), "--min-size", "1M", "--verify", "-v", "--", "true", "{}"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(said.matches("identical").count(), 2, "{said}");
    assert_eq!(run(&[text(&root), "-q", "--min-size", "1M", "--", "true", "{}"]).stderr, b"");
}
