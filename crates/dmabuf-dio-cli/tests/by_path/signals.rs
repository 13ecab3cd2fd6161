// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals to this program and its command, and the remains after SIGKILL.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use tempfile::TempDir;

use crate::common::{self, eventually, file, folder, text};
use crate::{load, model, private};

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
    let words = ["-q", "--", "python3", "-IS", "-c", &script, "{}", &signal, text(&ready)];
    let child = load(temporary, &[&[text(path)], &words[..]].concat()).spawn();
    let child = child.expect("run dmabuf-dio");
    eventually("the command runs", || ready.exists());
    (child, ready)
}

fn kill(child: &Child, signal: i32) {
    // SAFETY: the call takes numbers. The child has not been waited for.
    assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
}

#[test]
fn signals_are_passed_on_to_the_command() {
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
            eventually("it is handled", || handled.exists());
            fs::remove_file(handled).expect("remove");
        }
        assert_eq!(child.wait().expect("its end").code(), Some(5), "{signal}");
        fs::remove_file(ready).expect("remove");
        assert_eq!(private(&temporary), [] as [PathBuf; 0], "{signal}");
        // It does not. Under nohup the tests inherit that SIGHUP is ignored.
        let limit = "import resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0))";
        let default = format!("import signal; signal.signal({signal}, signal.SIG_DFL)");
        let script = format!("{limit}\n{default}\ntell(ready + '-1')\ntime.sleep(600)");
        let (mut child, ready) = start(&temporary, &path, 0, &script);
        let limited = temporary.path().join("ready-1");
        eventually("it has set its limit", || limited.exists());
        kill(&child, signal);
        assert_eq!(child.wait().expect("its end").code(), Some(128 + signal));
        fs::remove_file(ready).expect("remove");
        fs::remove_file(limited).expect("remove");
        assert_eq!(private(&temporary), [] as [PathBuf; 0], "{signal}");
    }
}

#[test]
fn command_receives_its_group_signals_once() {
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
    let words = ["-q", "--", "python3", "-IS", "-c", &script, "{}", &number, text(&ready)];
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
    while signal.sigtimedwait({signal.SIGINT}, 600 if count == 0 else 0.2):
        count += 1
    tell(f'{ready}-{number}')
    print('got', count, sys.stdin.readline(), flush=True)
sys.exit(6)
";

/// Ctrl-C reaches the command once, which stays in the foreground and reads from the terminal.
#[test]
fn command_owns_the_terminal() {
    let folder = folder();
    let (path, _) = file(&folder, 5000);
    let (temporary, told) = (common::folder(), common::folder());
    let ready = told.path().join("ready");
    let (mut ours, theirs) = terminal();
    let number = theirs.as_raw_fd();
    let words = ["-q", "--", "python3", "-IS", "-c", TAKES, "{}", text(&ready)];
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
    eventually("the command runs", || ready.exists());
    let mut said = Vec::new();
    for round in 0..8 {
        ours.write_all(b"\x03").expect("Ctrl-C");
        let handled = told.path().join(format!("ready-{round}"));
        eventually("it is handled", || handled.exists());
        // Ctrl-C discards typed characters that were not read.
        ours.write_all(b"line\n").expect("write");
        // The output is read at once, because the next Ctrl-C also discards output that was not
        // read.
        let before = said.len();
        while !String::from_utf8_lossy(&said[before..]).contains("line\r\n\r\n") {
            let mut some = [0; 256];
            // EIO: the other end is closed.
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
fn next_run_removes_folders_of_a_killed_one() {
    let folder = folder();
    let (path, _) = file(&folder, 5000);
    let temporary = common::folder();
    let (mut child, ready) = start(&temporary, &path, 0, "time.sleep(600)");
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
    eventually("the command is gone", || {
        let other = load(&temporary, &[text(&path), "-q", "--", "true", "{}"]).status();
        assert!(other.expect("run").success());
        private(&temporary).is_empty()
    });
}

/// Files that it opens later are not the loaded ones.
#[test]
fn orphaned_command_keeps_its_small_files() {
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
    let words =
        ["-q", "--min-size", "1M", "--", "python3", "-IS", "-c", &script, "{}", "0", text(&ready)];
    let mut child = load(&temporary, &[&[text(&root)], &words[..]].concat()).spawn().expect("run");
    eventually("the command runs", || ready.exists());
    kill(&child, libc::SIGKILL);
    child.wait().expect("its end");
    let other = load(&temporary, &[text(&root), "-q", "--min-size", "1M", "--", "true", "{}"]);
    assert!({ other }.status().expect("run").success());
    fs::write(temporary.path().join("ready-go"), "").expect("write");
    eventually("it has answered", || fs::metadata(&answer).is_ok_and(|stat| stat.len() > 0));
    assert_eq!(fs::read_to_string(&answer).expect("read"), "True");
}
