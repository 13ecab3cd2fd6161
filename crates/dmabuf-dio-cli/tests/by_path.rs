// SPDX-License-Identifier: MIT OR Apache-2.0
//! `load PATH -- COMMAND {}`: what the command finds, how it ends, and what stays.

mod common;

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use common::{file, folder, program, text};
use dmabuf_dio::{Backend, DmaBuf, probe};
use rustix::fs::SealFlags;
use rustix::mm::{MapFlags, ProtFlags};
use serde_json::Value;
use tempfile::TempDir;

/// `load`, with private folders in `temporary`.
fn load(temporary: &TempDir, arguments: &[&str]) -> Command {
    let mut command = program();
    command.env("TMPDIR", temporary.path()).env_remove("XDG_RUNTIME_DIR");
    command.env_remove("DMABUF_DIO_FILES").arg("load").args(arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs it, and checks that no private folder stays.
fn run(arguments: &[&str]) -> Output {
    let temporary = folder();
    let output = load(&temporary, arguments).output().expect("run dmabuf-dio");
    assert_eq!(private(&temporary), [] as [PathBuf; 0], "{arguments:?} leaves a folder");
    output
}

/// Runs a command that has to succeed, and returns what it prints.
#[track_caller]
fn ok(arguments: &[&str]) -> String {
    let output = run(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {:?}\n{errors}", output.status);
    String::from_utf8(output.stdout).expect("text")
}

/// Runs a command that has to fail with `code`. Returns its errors.
#[track_caller]
fn fails(code: i32, arguments: &[&str]) -> String {
    let output = run(arguments);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}\n{errors}");
    errors
}

fn private(temporary: &TempDir) -> Vec<PathBuf> {
    let entries = fs::read_dir(temporary.path()).expect("the folder").flatten();
    entries.map(|entry| entry.path()).collect()
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..30_000 {
        if condition() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("not within 30 s: {what}");
}

/// This program as the command: `consumer` below, with its arguments in variables.
fn consumer_of(original: &Path, path: &str) -> Vec<String> {
    let own = std::env::current_exe().expect("this program");
    let mut words = vec!["env".to_owned(), format!("DIO_PATH={path}")];
    words.push(format!("DIO_ORIGINAL={}", text(original)));
    words.push(text(&own).to_owned());
    words.extend(["consumer", "--exact", "--ignored", "--nocapture"].map(str::to_owned));
    words
}

/// The command that other tests run: reads the file at `DIO_PATH`, and tries to change it.
#[test]
#[ignore = "other tests run it"]
fn consumer() {
    let path = PathBuf::from(std::env::var_os("DIO_PATH").expect("run by another test"));
    let wanted = fs::read(std::env::var_os("DIO_ORIGINAL").expect("its file")).expect("read");
    let stat = fs::metadata(&path).expect("stat");
    assert!(stat.is_file());
    assert_eq!(stat.len(), wanted.len() as u64);
    assert!(fs::read(&path).expect("read") == wanted, "other bytes");

    let file = File::open(&path).expect("open");
    let map = |prot| {
        let (any, len) = (std::ptr::null_mut(), wanted.len());
        // SAFETY: requests new address space.
        unsafe { rustix::mm::mmap(any, len, prot, MapFlags::SHARED, &file, 0) }
    };
    let start = map(ProtFlags::READ).expect("map");
    // SAFETY: the mapping has this length and stays; nobody can write the file.
    let bytes = unsafe { std::slice::from_raw_parts(start.cast::<u8>(), wanted.len()) };
    assert!(bytes == wanted, "other bytes in a mapping");
    assert_eq!(map(ProtFlags::READ | ProtFlags::WRITE), Err(rustix::io::Errno::ACCESS));

    // Its permissions do not stop root.
    match OpenOptions::new().write(true).open(&path) {
        Ok(file) => {
            let refused = |error: std::io::Error| error.raw_os_error() == Some(libc::EPERM);
            assert!(refused(file.write_at(b"x", 0).expect_err("it is sealed")));
            assert!(refused(file.set_len(0).expect_err("it is sealed")));
            assert!(refused(file.set_len(stat.len() + 1).expect_err("it is sealed")));
        }
        Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EACCES)),
    }
    let seals = rustix::fs::fcntl_get_seals(&file).expect("seals");
    assert!(seals.contains(SealFlags::SHRINK | SealFlags::GROW), "{seals:?}");
    assert!(seals.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE), "{seals:?}");

    let huge = probe::system().huge_pages;
    let buf = DmaBuf::from_fd(file.into()).expect("a buffer");
    let pages = buf.page_sizes().expect("page sizes");
    if huge.transparent || huge.collapsed {
        let whole = stat.len() / (2 << 20) * (2 << 20);
        assert!(pages.huge_bytes >= whole, "{pages:?} of {}", stat.len());
    }
    println!("every byte is there");
}

#[test]
fn any_program_finds_the_file() {
    let folder = folder();
    for len in [1, 4095, 4096, 4097, (2 << 20) + 1, (64 << 20) + 123] {
        let (path, _) = file(&folder, len);
        let arguments =
            [vec![text(&path).to_owned(), "--quiet".into(), "--".into()], consumer_of(&path, "{}")];
        let arguments = arguments.concat();
        let said = ok(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(said.contains("every byte is there"), "{len}: {said}");
    }
}

#[test]
fn a_range_is_a_file_of_its_own() {
    let folder = folder();
    let (path, bytes) = file(&folder, 100_000);
    let part = folder.path().join("part");
    fs::write(&part, &bytes[5000..5000 + 70_001]).expect("write");
    let range = ["--offset", "5000", "--length", "70001"];
    ok(&[&[text(&path)], &range[..], &["--", "cmp", text(&part), "{}"]].concat());
}

#[test]
fn the_name_is_the_files_own() {
    let folder = folder();
    let (path, _) = file(&folder, 5000);
    let blob = folder.path().join("model-00001-of-00001.safetensors");
    std::os::unix::fs::symlink(&path, &blob).expect("link");
    let said = ok(&[
        text(&blob),
        "--",
        "sh",
        "-c",
        "echo $1 $2; stat -c %a $(dirname $1)",
        "x",
        "{}",
        "--m={{}}{}",
    ]);
    let words: Vec<&str> = said.split_ascii_whitespace().collect();
    assert!(words[0].ends_with("/model-00001-of-00001.safetensors"), "{said}");
    assert_eq!(words[1], format!("--m={{}}{}", words[0]));
    assert_eq!(words[2], "700");
}

#[test]
fn without_a_place_nothing_is_as_by_path() {
    let folder = folder();
    let (path, _) = file(&folder, 5000);
    let said = ok(&[
        text(&path),
        "--",
        "sh",
        "-c",
        "echo $1 $DMABUF_DIO_FILES $DMABUF_DIO_LEN",
        "x",
        "{{}}",
    ]);
    assert_eq!(said, "{} 5000\n");
}

/// Workers close descriptors that they do not know.
#[test]
fn workers_without_descriptors_find_it() {
    let folder = folder();
    let (path, _) = file(&folder, 3_000_000);
    let close = "for fd in $(ls /proc/self/fd); do [ $fd -gt 2 ] && eval \"exec $fd>&-\"; done; \
                 (cmp $1 $2 && sh -c 'cmp $1 $2' x $1 $2) && setsid -w cmp $1 $2";
    ok(&[text(&path), "--", "bash", "-c", close, "x", text(&path), "{}"]);
}

#[test]
fn it_is_as_old_as_its_file_and_read_only() {
    let folder = folder();
    let (path, _) = file(&folder, 5000);
    let old = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    File::options().write(true).open(&path).expect("open").set_modified(old).expect("its time");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("permissions");
    assert_eq!(
        ok(&[text(&path), "--", "stat", "-L", "-c", "%Y %a %s", "{}"]),
        "1000000000 440 5000\n"
    );
}

#[test]
fn all_parts_of_a_split_model_are_there() {
    let folder = folder();
    let name = |part: usize| folder.path().join(format!("m-0000{part}-of-00003.gguf"));
    for part in 1..=3 {
        fs::write(name(part), vec![part as u8; part * 10_000]).expect("write");
    }
    let script = "for n in 1 2 3; do cmp $(dirname $1)/m-0000$n-of-00003.gguf $2/m-0000$n-of-00003.gguf || exit 9; done; \
                  ls $(dirname $1); readlink $(dirname $1)/* | grep -c ^/proc/";
    let said = ok(&[text(&name(1)), "--", "sh", "-c", script, "x", "{}", text(folder.path())]);
    assert!(said.ends_with("m-00003-of-00003.gguf\n3\n"), "{said}");
    let counted =
        ok(&[text(&name(2)), "--offset", "1", "--", "sh", "-c", "ls $(dirname $0) | wc -l", "{}"]);
    assert_eq!(counted, "1\n", "a range is of one file");
    fs::remove_file(name(2)).expect("remove");
    let errors = fails(1, &[text(&name(1)), "--", "true", "{}"]);
    assert!(errors.contains("there is no m-00002-of-00003.gguf beside it"), "{errors}");
}

/// A model's folder: two shards, small files, one of them in a folder.
fn model(folder: &TempDir) -> PathBuf {
    let root = folder.path().join("model");
    fs::create_dir_all(root.join("tokenizer/empty")).expect("folders");
    for (name, len) in [
        ("model-00001-of-00002.safetensors", 5_000_001),
        ("model-00002-of-00002.safetensors", (2 << 20) + 7),
        ("config.json", 700),
        ("tokenizer/vocab.txt", 1000),
    ] {
        let bytes: Vec<u8> = (0..len).map(|at| (at ^ (at >> 9) ^ len) as u8).collect();
        let mut file = File::create(root.join(name)).expect("create");
        file.write_all(&bytes).expect("write");
        file.sync_all().expect("sync");
    }
    root
}

#[test]
fn a_folder_is_mirrored() {
    let folder = folder();
    let root = model(&folder);
    let script = "diff -r $1 $2 && find $1 -type l -lname '/proc/*' | wc -l && cat $DMABUF_DIO_FILES && echo $DMABUF_DIO_FD";
    let temporary = common::folder();
    let arguments = [
        text(&root),
        "--min-size",
        "1M",
        "--json",
        "--",
        "sh",
        "-c",
        script,
        "x",
        "{}",
        text(&root),
    ];
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
        let said = ok(&[
            &name,
            "--min-size",
            "1M",
            "--",
            "sh",
            "-c",
            "diff -r $1 $2 && basename $1",
            "x",
            "{}",
            &name,
        ]);
        assert_eq!(said, "model\n", "{name}");
    }
}

/// The descriptors in the list are buffers with the content of the files.
#[test]
fn the_listed_buffers_are_inherited() {
    let folder = folder();
    let root = model(&folder);
    let script = "import hashlib, json, mmap, os, sys\n\
        for one in json.load(open(os.environ['DMABUF_DIO_FILES']))['files']:\n \
        n = one['length']; m = mmap.mmap(one['fd'], (n + 4095) // 4096 * 4096 if one['buffer'] == 'dmabuf' else n, mmap.MAP_SHARED, mmap.PROT_READ)\n \
        assert m[:n] == open(one['path'], 'rb').read() == open(one['file'], 'rb').read()\n \
        print(one['buffer'])";
    let said = ok(&[text(&root), "--min-size", "1M", "-q", "--", "python3", "-c", script, "{}"]);
    let kinds: Vec<&str> = said.lines().collect();
    let expected = if probe::backend(Backend::Udmabuf).available { "dmabuf" } else { "memfd" };
    assert_eq!(kinds, [expected; 2]);
}

#[test]
fn one_file_is_inherited_as_a_buffer() {
    let folder = folder();
    let (path, bytes) = file(&folder, 70_001);
    let copy = folder.path().join("copy");
    let save = env!("CARGO_BIN_EXE_dmabuf-dio");
    ok(&[text(&path), "--", "env", "X={}", save, "save", text(&copy), "--quiet"]);
    assert!(fs::read(&copy).expect("read") == bytes);
}

#[test]
fn it_is_verified() {
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

#[test]
fn the_exit_code_is_passed_on() {
    let folder = folder();
    let (path, _) = file(&folder, 5000);
    let path = text(&path);
    for code in [0, 1, 7, 255] {
        let script = format!("exit {code}");
        assert_eq!(run(&[path, "--", "sh", "-c", &script, "{}"]).status.code(), Some(code));
    }
    for signal in [libc::SIGTERM, libc::SIGKILL, libc::SIGSEGV] {
        let script = format!("ulimit -c 0; kill -{signal} $$");
        let output = run(&[path, "-q", "--", "sh", "-c", &script, "{}"]);
        assert_eq!(output.status.code(), Some(128 + signal), "{output:?}");
    }
    assert!(fails(127, &[path, "-q", "--", "no-such-program", "{}"]).contains("not found"));
    assert!(fails(126, &[path, "-q", "--", "/etc/passwd", "{}"]).contains("cannot be run"));
}

#[test]
fn errors_say_what_to_do() {
    let folder = folder();
    let root = model(&folder);
    let root = text(&root);
    for (code, arguments, what, hint) in [
        (1, &[root, "--", "true"][..], "a folder is loaded for a command", "-- COMMAND {}"),
        (1, &[root][..], "a folder is loaded for a command", "-- COMMAND {}"),
        (2, &[root, "--offset", "1", "--", "true", "{}"], "has no range", "--offset"),
        (1, &[root, "--", "true", "{}"], "no file has 16 MiB or more", "--min-size"),
        (1, &["/nowhere", "--", "true", "{}"], "cannot open it", "check the path"),
        (
            3,
            &[root, "--min-size", "1M", "--backend", "module", "--", "true", "{}"],
            "cannot create a memfd",
            "memfd, buffered",
        ),
    ] {
        let errors = fails(code, arguments);
        let lines: Vec<&str> = errors.lines().collect();
        assert_eq!(lines.len(), 2, "{arguments:?}: {errors}");
        assert!(lines[0].contains(what) && lines[1].contains(hint), "{arguments:?}: {errors}");
    }
}

#[test]
fn what_the_command_writes_is_kept() {
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

/// A Python program that counts a signal, and tells in files called `ready`, `ready-1`, ... A shell
/// would lose signals that arrive while it waits for another program.
const COUNTS: &str = "
import os, signal, sys, time
signal_number, ready = int(sys.argv[2]), sys.argv[3]
count = 0
def tell(name):
    open(name + '.new', 'w').write(str(os.getpid()))
    os.rename(name + '.new', name)
def handle(*_):
    global count
    count += 1
    tell(f'{ready}-{count}')
if signal_number:
    signal.signal(signal_number, handle)
else:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
tell(ready)
";

/// Starts a command and waits until it is ready. It counts `signal`; 0 is none.
fn start(temporary: &TempDir, path: &Path, signal: i32, script: &str) -> (Child, PathBuf) {
    let ready = temporary.path().join("ready");
    let (script, signal) = (format!("{COUNTS}{script}"), signal.to_string());
    let words = ["-q", "--", "python3", "-c", &script, "{}", &signal, text(&ready)];
    let child = load(temporary, &[&[text(path)], &words[..]].concat()).spawn();
    let child = child.expect("run dmabuf-dio");
    wait_until("the command runs", || ready.exists());
    (child, ready)
}

fn kill(child: &Child, signal: i32) {
    // SAFETY: the call takes numbers. The child has not been waited for.
    assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
}

#[test]
fn signals_are_passed_on() {
    let folder = folder();
    let (path, _) = file(&folder, 5000);
    for signal in
        [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGUSR1, libc::SIGUSR2]
    {
        let temporary = common::folder();
        // It handles the signal.
        let script = format!(
            "while count < 2: time.sleep(0.01)\n\
             same = open(sys.argv[1], 'rb').read() == open('{}', 'rb').read()\n\
             sys.exit(5 if same else 6)",
            text(&path)
        );
        let (mut child, ready) = start(&temporary, &path, signal, &script);
        for count in [1, 2] {
            assert!(child.try_wait().expect("its state").is_none(), "{signal}: the first ends it");
            kill(&child, signal);
            let handled = temporary.path().join(format!("ready-{count}"));
            wait_until("it is handled", || handled.exists());
            fs::remove_file(handled).expect("remove");
        }
        assert_eq!(child.wait().expect("its end").code(), Some(5), "{signal}");
        fs::remove_file(ready).expect("remove");
        assert_eq!(private(&temporary), [] as [PathBuf; 0], "{signal}");
        // It does not. Under nohup the tests inherit that SIGHUP is ignored.
        let limit = "import resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0))";
        let default = format!("import signal; signal.signal({signal}, signal.SIG_DFL)");
        let script = format!("{limit}\n{default}\ntell(ready + '-1')\ntime.sleep(100)");
        let (mut child, ready) = start(&temporary, &path, 0, &script);
        let limited = temporary.path().join("ready-1");
        wait_until("it has set its limit", || limited.exists());
        kill(&child, signal);
        assert_eq!(child.wait().expect("its end").code(), Some(128 + signal));
        fs::remove_file(ready).expect("remove");
        fs::remove_file(limited).expect("remove");
        assert_eq!(private(&temporary), [] as [PathBuf; 0], "{signal}");
    }
}

#[test]
fn a_command_gets_its_own_signals_once() {
    let folder = folder();
    let (path, _) = file(&folder, 5000);
    let temporary = common::folder();
    let ready = temporary.path().join("ready");
    // To its process group, with `dmabuf-dio` in it; then to the latter alone.
    let script = format!(
        "{COUNTS}for process in [0, os.getppid()]:\n    \
             os.kill(process, signal_number)\n    time.sleep(0.3)\nsys.exit(10 + count)"
    );
    let number = libc::SIGUSR1.to_string();
    let words = ["-q", "--", "python3", "-c", &script, "{}", &number, text(&ready)];
    let mut command = load(&temporary, &[&[text(&path)], &words[..]].concat());
    let status = command.process_group(0).status().expect("run dmabuf-dio");
    assert_eq!(status.code(), Some(11), "{status}");
}

/// A pseudo-terminal: its two ends.
fn terminal() -> (File, OwnedFd) {
    let (mut ours, mut theirs) = (0, 0);
    let none = std::ptr::null_mut();
    // SAFETY: the call fills two numbers, which outlive it.
    let result = unsafe {
        libc::openpty(&raw mut ours, &raw mut theirs, none, std::ptr::null(), std::ptr::null())
    };
    assert_eq!(result, 0);
    // SAFETY: both were just opened, and nothing else owns them.
    unsafe { (File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) }
}

/// Reads lines from the terminal, and the interrupts before each, which it takes one by one.
const TAKES: &str = "
import os, signal, sys
ready = sys.argv[2]
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
def tell(name):
    open(name, 'w').close()
tell(ready)
for number in range(8):
    count = 0
    while signal.sigtimedwait({signal.SIGINT}, 30 if count == 0 else 0.2):
        count += 1
    tell(f'{ready}-{number}')
    print('got', count, sys.stdin.readline(), flush=True)
sys.exit(6)
";

/// Ctrl-C reaches the command once, which stays in the foreground and reads from the terminal.
#[test]
fn the_terminal_is_the_commands() {
    let folder = folder();
    let (path, _) = file(&folder, 5000);
    let (temporary, told) = (common::folder(), common::folder());
    let ready = told.path().join("ready");
    let (mut ours, theirs) = terminal();
    let number = theirs.as_raw_fd();
    let words = ["-q", "--", "python3", "-c", TAKES, "{}", text(&ready)];
    let mut command = load(&temporary, &[&[text(&path)], &words[..]].concat());
    let end = || Stdio::from(theirs.try_clone().expect("a descriptor"));
    command.stdin(end()).stdout(end()).stderr(end());
    // SAFETY: the closure makes system calls only, which are async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            if libc::setsid() < 0 || libc::ioctl(number, libc::TIOCSCTTY, 0) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            Ok(())
        });
    }
    let mut child = command.spawn().expect("run dmabuf-dio");
    drop(command);
    drop(theirs);
    wait_until("the command runs", || ready.exists());
    let mut said = Vec::new();
    for round in 0..8 {
        ours.write_all(b"\x03").expect("Ctrl-C");
        let handled = told.path().join(format!("ready-{round}"));
        wait_until("it is handled", || handled.exists());
        // Ctrl-C discards what was typed and not read.
        ours.write_all(b"line\n").expect("write");
        // Read at once, as the next Ctrl-C also discards what was printed and not read.
        let before = said.len();
        while !String::from_utf8_lossy(&said[before..]).contains("line\r\n\r\n") {
            let mut some = [0; 256];
            // EIO: nobody has the other end any more.
            let Ok(got @ 1..) = ours.read(&mut some) else { break };
            said.extend_from_slice(&some[..got]);
        }
    }
    let status = child.wait().expect("its end");
    let said = String::from_utf8_lossy(&said).into_owned();
    assert_eq!(status.code(), Some(6), "{said}");
    assert_eq!(said.matches("got 1 line").count(), 8, "{said}");
    assert_eq!(private(&temporary), [] as [PathBuf; 0]);
}

#[test]
fn the_next_run_removes_what_a_killed_one_left() {
    let folder = folder();
    let (path, _) = file(&folder, 5000);
    let temporary = common::folder();
    let (mut child, ready) = start(&temporary, &path, 0, "time.sleep(100)");
    let command = fs::read_to_string(&ready).expect("its pid").trim().parse().expect("a number");
    fs::remove_file(&ready).expect("remove");
    let alive = private(&temporary);
    assert_eq!(alive.len(), 1);
    let other = load(&temporary, &[text(&path), "-q", "--", "true", "{}"]).status().expect("run");
    assert!(other.success());
    assert_eq!(private(&temporary), alive, "another run does not touch it");
    kill(&child, libc::SIGKILL);
    assert_eq!(child.wait().expect("its end").signal(), Some(libc::SIGKILL));
    assert_eq!(private(&temporary), alive, "nobody was left to remove it");
    let other = load(&temporary, &[text(&path), "-q", "--", "true", "{}"]).status().expect("run");
    assert!(other.success());
    assert_eq!(private(&temporary), alive, "the command still runs, and has its links");
    // SAFETY: the call takes numbers; this is the process that this test has started.
    assert_eq!(unsafe { libc::kill(command, libc::SIGKILL) }, 0);
    wait_until("the command is gone", || {
        let other = load(&temporary, &[text(&path), "-q", "--", "true", "{}"]).status();
        assert!(other.expect("run").success());
        private(&temporary).is_empty()
    });
}

/// What it opens later is not what was loaded.
#[test]
fn a_command_keeps_its_small_files_when_it_is_left_alone() {
    let folder = folder();
    let root = model(&folder);
    let temporary = common::folder();
    let ready = temporary.path().join("ready");
    let answer = temporary.path().join("answer");
    let script = format!(
        "{COUNTS}\nwhile not os.path.exists(ready + '-go'): time.sleep(0.01)\n\
         same = open(sys.argv[1] + '/config.json', 'rb').read() == open('{}/config.json', 'rb').read()\n\
         open('{}', 'w').write(str(same))",
        text(&root),
        text(&answer)
    );
    let words = ["-q", "--min-size", "1M", "--", "python3", "-c", &script, "{}", "0", text(&ready)];
    let mut child = load(&temporary, &[&[text(&root)], &words[..]].concat()).spawn().expect("run");
    wait_until("the command runs", || ready.exists());
    kill(&child, libc::SIGKILL);
    child.wait().expect("its end");
    let other = load(&temporary, &[text(&root), "-q", "--min-size", "1M", "--", "true", "{}"]);
    assert!({ other }.status().expect("run").success());
    fs::write(temporary.path().join("ready-go"), "").expect("write");
    wait_until("it has answered", || fs::metadata(&answer).is_ok_and(|stat| stat.len() > 0));
    assert_eq!(fs::read_to_string(&answer).expect("read"), "True");
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
fn names_that_are_no_text_are_listed() {
    use std::os::unix::ffi::OsStrExt as _;
    let folder = folder();
    let root = folder.path().join("model");
    fs::create_dir(&root).expect("a folder");
    let odd = root.join(std::ffi::OsStr::from_bytes(b"caf\xe9.bin"));
    fs::write(&odd, vec![7; 100_000]).expect("write");
    fs::write(root.join("text.bin"), vec![8; 100_000]).expect("write");
    let script = "import json, os, sys\n\
        one, other = json.load(open(os.environ['DMABUF_DIO_FILES']))['files']\n\
        path = bytes.fromhex(one['path_hex']); file = bytes.fromhex(one['file_hex'])\n\
        assert open(path, 'rb').read() == open(file, 'rb').read() == bytes([7]) * 100_000\n\
        assert os.path.basename(path) == b'caf\\xe9.bin'\n\
        assert 'path_hex' not in other and other['path'].endswith('/text.bin')";
    ok(&[text(&root), "-q", "--min-size", "1K", "--", "python3", "-c", script, "{}"]);
}

#[test]
fn a_missing_command_is_noticed_before_the_load() {
    let folder = folder();
    let (path, _) = file(&folder, 5000);
    let path = text(&path);
    let plain = folder.path().join("plain");
    fs::write(&plain, "").expect("write");
    let missing = folder.path().join("missing");
    for (code, program, what) in [
        (127, "no-such-program", "not found"),
        (127, text(&missing), "not found"),
        (126, text(&plain), "cannot be run"),
        (126, text(folder.path()), "cannot be run"),
        (127, "", "not found"),
    ] {
        for place in [&["{}"][..], &[]] {
            let arguments = [&[path, "--", program], place].concat();
            let errors = fails(code, &arguments);
            assert!(errors.contains(what), "{arguments:?}: {errors}");
            assert_eq!(errors.lines().count(), 2, "nothing was loaded: {errors}");
        }
    }
    // In the folder that the user is in, and in the folders of $PATH
    let script = folder.path().join("script");
    fs::write(&script, "#!/bin/sh\nexit 5\n").expect("write");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("permissions");
    let temporary = common::folder();
    for (name, search) in
        [("./script", None), ("script", Some(":")), ("script", Some("/nowhere:."))]
    {
        let mut command = load(&temporary, &[path, "-q", "--", name, "{}"]);
        command.current_dir(folder.path());
        if let Some(search) = search {
            command.env("PATH", search);
        }
        assert_eq!(command.output().expect("run").status.code(), Some(5), "{name} {search:?}");
    }
}

#[test]
fn the_private_folder_is_the_users_own_if_there_is_one() {
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

/// Nobody reads standard error any more.
#[test]
fn exit_codes_need_no_reader() {
    let folder = folder();
    let (path, _) = file(&folder, 5000);
    let path = text(&path);
    let writes = [path, "-q", "--", "sh", "-c", "echo x >$(dirname $0)/result; exit 7", "{}"];
    for (code, arguments) in [
        (1, &["/nowhere", "-q", "--", "cat", "{}"] as &[&str]),
        (7, &writes),
        (127, &[path, "-q", "--", "no-such-program", "{}"]),
    ] {
        let temporary = common::folder();
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        drop(reader);
        let status = load(&temporary, arguments).stderr(writer).status().expect("run");
        assert_eq!(status.code(), Some(code), "{arguments:?}");
    }
}
