// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exceeding a limit of the process or its control group is an error. The process is not killed.

#![cfg(target_os = "linux")]

mod common;

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::{folder, program};

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

/// Runs the command with a maximum file size of `limit` bytes.
fn with_short_files(limit: u64, arguments: &[&str]) -> Output {
    let mut command = program();
    // SAFETY: the closure makes one system call, which is async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
            match libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
    }
    command.args(arguments).output().expect("run dmabuf-dio")
}

#[test]
fn file_size_limit_is_reported_with_its_remedy() {
    let folder = folder();
    let file = folder.path().join("file");
    fs::write(&file, vec![7; 3 << 20]).expect("written");
    let path = file.to_str().expect("text");

    let load = with_short_files(2 << 20, &["load", "--backend", "memfd", path]);
    assert_eq!(load.status.code(), Some(1), "{load:?}");
    assert!(text(&load.stderr).contains("ulimit -f"), "{}", text(&load.stderr));

    // The load before the save has no limit.
    let copy = folder.path().join("copy");
    fs::write(&copy, "before").expect("written");
    let exe = env!("CARGO_BIN_EXE_dmabuf-dio");
    let limited = format!("ulimit -f 2048; exec {exe} save {}", copy.display());
    let save = program()
        .args(["load", "--quiet", "--backend", "memfd", path, "--", "sh", "-c", &limited])
        .output()
        .expect("run dmabuf-dio");
    assert_eq!(save.status.code(), Some(1), "{save:?}");
    assert!(text(&save.stderr).contains("ulimit -f"), "{}", text(&save.stderr));
    assert_eq!(fs::read(&copy).expect("read"), b"before");
    assert_eq!(fs::read_dir(folder.path()).expect("list").count(), 2);
}

/// `dmabuf-dio load --lock` in a process that may lock so many bytes.
fn lock_with(limit: libc::rlim_t, kind: &str, file: &Path) -> Output {
    let mut command = program();
    // SAFETY: the closure makes two system calls, which are async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            // Root has the capability to exceed the limit. Others cannot drop it, and need not.
            const CAP_IPC_LOCK: libc::c_ulong = 14;
            libc::prctl(libc::PR_CAPBSET_DROP, CAP_IPC_LOCK, 0, 0, 0);
            let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
            match libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
    }
    let arguments = ["load", "--lock", "--kind", kind, file.to_str().expect("text")];
    command.args(arguments).output().expect("run dmabuf-dio")
}

/// More than a huge page, and less than two.
#[test]
fn lock_takes_no_more_than_the_limit_allows() {
    let folder = folder();
    let file = folder.path().join("file");
    fs::write(&file, vec![7; (2 << 20) + 5000]).expect("written");
    for kind in ["private", "memfd", "file"] {
        let load = lock_with(3 << 20, kind, &file);
        assert_eq!(load.status.code(), Some(0), "{kind}: {load:?}");
    }
}

#[test]
fn lock_beyond_the_limit_is_an_error_with_its_remedy() {
    let folder = folder();
    let file = folder.path().join("file");
    fs::write(&file, vec![7; 300_000]).expect("written");
    for kind in ["private", "memfd", "file"] {
        let load = lock_with(65_536, kind, &file);
        let said = text(&load.stderr);
        assert_eq!(load.status.code(), Some(1), "{kind}: {load:?}");
        assert!(said.contains("cannot be locked (RLIMIT_MEMLOCK is 65536)"), "{kind}: {said}");
        assert!(said.contains("ulimit -l") && said.contains("LimitMEMLOCK="), "{kind}: {said}");
    }
}

/// Bytes that the parent of the command has locked: of dmabuf-dio, if it waits for the command.
#[test]
fn lock_of_a_memfd_lasts_as_long_as_the_command() {
    let folder = folder();
    let file = folder.path().join("file");
    fs::write(&file, vec![7; 30_000]).expect("written");
    let facts = "cat /proc/$PPID/comm; grep VmLck /proc/$PPID/status";
    // By path, the descriptor may be that of a dma-buf over the memfd.
    let inherited = "/proc/self/fd/$DMABUF_DIO_FD";
    for (kind, content) in [("memfd", inherited), ("file", inherited), ("any", "$1")] {
        let command = format!("{facts}; cat \"{content}\" | wc -c; exit 7");
        let mut load = program();
        load.args(["load", "--quiet", "--lock", "--kind", kind, file.to_str().expect("text")]);
        load.args(["--", "sh", "-c", &command]);
        if content == "$1" {
            load.args(["sh", "{}"]);
        }
        let output = load.output().expect("run dmabuf-dio");
        let said = text(&output.stdout);
        assert_eq!(output.status.code(), Some(7), "{output:?}");
        assert!(said.starts_with("dmabuf-dio\n"), "{said}");
        let locked = said.lines().find_map(|line| line.strip_prefix("VmLck:")).expect("a line");
        let kib: u64 = locked.trim().trim_end_matches(" kB").parse().expect("a number");
        assert!((30..100).contains(&kib), "{said}");
        assert!(said.lines().any(|line| line == "30000"), "{said}");
    }
}

#[test]
fn small_stack_limit_is_enough() {
    let folder = folder();
    let file = folder.path().join("file");
    fs::write(&file, vec![7; 70_000]).expect("written");
    let exe = env!("CARGO_BIN_EXE_dmabuf-dio");
    for command in ["doctor".to_owned(), format!("load --verify {}", file.display())] {
        let script = format!("ulimit -s 64; exec {exe} {command}");
        let output = Command::new("sh").args(["-c", &script]).output().expect("sh");
        assert!(output.status.success(), "{command}: {}", text(&output.stderr));
    }
}

/// A control group with a memory limit. Only in guests: the host's settings are not changed.
struct Group(PathBuf);

impl Group {
    fn new(limit: u64) -> Option<Self> {
        std::env::var_os("DMABUF_DIO_KERNEL")?;
        let root = Path::new("/sys/fs/cgroup");
        // A kernel without control groups
        if !root.exists() {
            return None;
        }
        if !root.join("cgroup.controllers").exists() {
            let mount = ["-t", "cgroup2", "none", "/sys/fs/cgroup"];
            assert!(Command::new("mount").args(mount).status().expect("mount").success());
        }
        if !fs::read_to_string(root.join("cgroup.controllers"))
            .expect("controllers")
            .contains("memory")
        {
            return None;
        }
        fs::write(root.join("cgroup.subtree_control"), "+memory").expect("subtree");
        let group = root.join("dio-limits");
        fs::create_dir_all(&group).expect("group");
        fs::write(group.join("memory.max"), limit.to_string()).expect("limit");
        Some(Self(group))
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("sh");
        let enter = format!("echo $$ >{}/cgroup.procs && exec \"$@\"", self.0.display());
        command.args(["-c", &enter, "sh", env!("CARGO_BIN_EXE_dmabuf-dio")]).args(arguments);
        command.output().expect("run dmabuf-dio")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn memory_limit_of_the_control_group_is_respected() {
    let Some(group) = Group::new(64 << 20) else {
        println!("skipped: no control groups for memory here");
        return;
    };
    let folder = folder();
    let path = |name: &str| folder.path().join(name).to_str().expect("text").to_owned();
    fs::write(path("large"), vec![7; 160 << 20]).expect("written");
    fs::write(path("small"), vec![7; 24 << 20]).expect("written");
    let large = group.run(&["load", "--backend", "memfd", &path("large")]);
    assert_eq!(large.status.code(), Some(1), "{large:?}");
    assert!(text(&large.stderr).contains("not enough memory"), "{}", text(&large.stderr));
    let small = group.run(&["load", "--backend", "memfd", &path("small")]);
    assert!(small.status.success(), "{small:?}");
    let events = fs::read_to_string(group.0.join("memory.events")).expect("events");
    assert!(events.contains("\noom_kill 0\n"), "{events}");
}
