// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals, and threads that cannot be started.

#![cfg(all(target_os = "linux", target_env = "gnu"))]

mod common;

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use common::{eventually, folder, program};

const SIGNALS: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// Starts a command that stops before its first instruction. This thread is its tracer.
fn traced(command: &mut Command) -> Child {
    // SAFETY: the closure makes system calls only, which are async-signal-safe.
    unsafe {
        command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    command.spawn().expect("run dmabuf-dio")
}

fn ptrace(request: u32, child: i32, address: usize, data: usize) {
    // SAFETY: the requests made here write at most `address` bytes to the address `data`.
    let result = unsafe { libc::ptrace(request, child, address, data) };
    assert!(result >= 0, "ptrace {request}: {}", std::io::Error::last_os_error());
}

fn wait(child: i32) -> i32 {
    let mut status = 0;
    // SAFETY: `status` outlives the call, which fills it.
    let waited = unsafe { libc::waitpid(child, &raw mut status, libc::__WALL) };
    assert_eq!(waited, child, "{}", std::io::Error::last_os_error());
    status
}

/// Runs a traced command and sends it a signal right after the system call that installs the
/// handler.
fn signal_at_once(child: &Child, signal: i32) {
    let pid = child.id() as i32;
    wait(pid);
    ptrace(libc::PTRACE_SETOPTIONS, pid, 0, libc::PTRACE_O_TRACESYSGOOD as usize);
    let mut installs = false;
    loop {
        ptrace(libc::PTRACE_SYSCALL, pid, 0, 0);
        let status = wait(pid);
        assert!(libc::WIFSTOPPED(status), "it ended, and has no handler: {status:#x}");
        if libc::WSTOPSIG(status) != libc::SIGTRAP | 0x80 {
            continue;
        }
        // SAFETY: all fields are numbers, for which zero is valid.
        let mut info: libc::ptrace_syscall_info = unsafe { std::mem::zeroed() };
        let place = &raw mut info as usize;
        ptrace(libc::PTRACE_GET_SYSCALL_INFO, pid, size_of_val(&info), place);
        if info.op == libc::PTRACE_SYSCALL_INFO_ENTRY {
            // SAFETY: the kernel has filled this variant.
            let call = unsafe { info.u.entry };
            installs = call.nr == libc::SYS_rt_sigaction as u64
                && call.args[0] == signal as u64
                && call.args[1] != 0;
        } else if installs {
            ptrace(libc::PTRACE_DETACH, pid, 0, signal as usize);
            return;
        }
    }
}

#[test]
fn early_signal_interrupts_the_load() {
    let folder = folder();
    let path = folder.path().join("file");
    std::fs::write(&path, vec![7; 5 << 20]).expect("written");
    for signal in SIGNALS {
        let mut command = program();
        let path = path.to_str().expect("text");
        command.args(["load", path, "--quiet"]).stderr(Stdio::piped()).stdout(Stdio::piped());
        let child = traced(&mut command);
        signal_at_once(&child, signal);
        let Output { status, stderr, .. } = child.wait_with_output().expect("its end");
        let said = String::from_utf8_lossy(&stderr);
        assert_eq!(status.code(), Some(128 + signal), "{status:?}: {said}");
        assert!(said.contains("cancelled"), "{said}");
    }
}

/// Starts a load that waits in `open()` until the returned file, which has a lease, is dropped. All
/// signals start with `action`.
fn waiting_load(path: &Path, action: libc::sighandler_t) -> Option<(Child, File)> {
    const F_SETSIG: i32 = 10; // linux/fcntl.h
    std::fs::write(path, vec![7; 5 << 20]).expect("written");
    let held = File::open(path).expect("open");
    // SAFETY: the calls take numbers. A process ignores SIGURG unless it handles it.
    let lease = |command, value: i32| unsafe { libc::fcntl(held.as_raw_fd(), command, value) };
    assert_eq!(lease(F_SETSIG, libc::SIGURG), 0);
    if lease(libc::F_SETLEASE, libc::F_WRLCK) != 0 {
        println!("skipped: no lease: {}", std::io::Error::last_os_error());
        return None;
    }
    let mut command = program();
    command.args(["load", "--quiet"]).arg(path).stderr(Stdio::piped());
    // SAFETY: the closure makes system calls only, which are async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            for signal in SIGNALS {
                libc::signal(signal, action);
            }
            Ok(())
        });
    }
    let child = command.spawn().expect("run dmabuf-dio");
    eventually("the load opens its file", || lease(libc::F_GETLEASE, 0) != libc::F_WRLCK);
    Some((child, held))
}

fn kill(child: &Child, signal: i32) {
    // SAFETY: the call takes numbers. The child has not been waited for.
    assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
}

/// Whether a signal is in a set of `/proc/PID/status`: `SigIgn`, `ShdPnd`, ...
fn is_in(set: &str, child: &Child, signal: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).expect("status");
    let mut lines = status.lines();
    let found = lines.find_map(|line| line.strip_prefix(set)?.strip_prefix(":\t"));
    let bits = u64::from_str_radix(found.expect("a set"), 16).expect("a number");
    bits & 1 << (signal - 1) != 0
}

#[test]
fn second_signal_has_its_default_action() {
    let folder = folder();
    for signal in SIGNALS {
        let path = folder.path().join(format!("file-{signal}"));
        let Some((mut child, held)) = waiting_load(&path, libc::SIG_DFL) else { return };
        kill(&child, signal);
        eventually("the first is handled", || !is_in("ShdPnd", &child, signal));
        std::thread::sleep(Duration::from_millis(50));
        assert!(child.try_wait().expect("its state").is_none(), "the first has ended it");
        kill(&child, signal);
        assert_eq!(child.wait().expect("its end").signal(), Some(signal));
        drop(held);
    }
}

#[test]
fn different_signal_does_not_count_as_second() {
    let folder = folder();
    let path = folder.path().join("file");
    let Some((child, held)) = waiting_load(&path, libc::SIG_DFL) else { return };
    for signal in SIGNALS {
        kill(&child, signal);
        eventually("it is handled", || !is_in("ShdPnd", &child, signal));
    }
    drop(held);
    let output = child.wait_with_output().expect("its end");
    assert!(output.status.code().is_some_and(|code| code != 0), "{output:?}");
}

#[test]
fn ignored_signal_stays_ignored() {
    let folder = folder();
    let path = folder.path().join("file");
    let Some((child, held)) = waiting_load(&path, libc::SIG_IGN) else { return };
    for signal in SIGNALS {
        assert!(is_in("SigIgn", &child, signal), "{signal}");
        kill(&child, signal);
    }
    drop(held);
    let output = child.wait_with_output().expect("its end");
    assert!(output.status.success(), "{output:?}");
}

/// No thread can start with a stack that exceeds the address space.
#[test]
fn failed_thread_start_is_an_error() {
    let folder = folder();
    let path = folder.path().join("file");
    std::fs::write(&path, vec![7; 20 << 20]).expect("written");
    let path = path.to_str().expect("text");
    let mut lacked = 0;
    for backend in dmabuf_dio::Backend::ALL {
        let arguments =
            ["load", path, "--quiet", "--backend", backend.name(), "--block-size", "64K"];
        let mut command = program();
        command.args(arguments).env("RUST_MIN_STACK", (1_u64 << 60).to_string());
        let Output { status, stderr, .. } = command.output().expect("run dmabuf-dio");
        let said = String::from_utf8_lossy(&stderr);
        assert!(matches!(status.code(), Some(0 | 1 | 3)), "{backend}: {status:?}: {said}");
        if status.code() == Some(1) {
            println!("{backend}: {said}");
            assert!(said.contains("cannot start a thread: EAGAIN"), "{backend}: {said}");
            lacked += 1;
        }
    }
    println!("{lacked} backends wanted a thread");
}
