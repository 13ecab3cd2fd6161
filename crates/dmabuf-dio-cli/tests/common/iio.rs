// SPDX-License-Identifier: MIT OR Apache-2.0
//! The simulated devices of `kernel/sim/iio_stream`, and the command that uses them.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use super::{Words, eventually, folder, ok, program, run};

pub(crate) const FRAME: usize = 8;

/// Exclusive use of the devices, and a folder on the file system under test.
pub(crate) struct Setup {
    folder: tempfile::TempDir,
    _lock: MutexGuard<'static, ()>,
}

impl Setup {
    pub(crate) fn get() -> Option<Self> {
        static LOCK: Mutex<()> = Mutex::new(());
        let lock = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        if sysfs("stream-adc").is_none() {
            let required = std::env::var("DMABUF_DIO_REQUIRE").unwrap_or_default();
            assert!(!required.contains("iio"), "there has to be a simulated IIO device");
            println!("skipped: no simulated IIO device");
            return None;
        }
        Some(Self { folder: folder(), _lock: lock })
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).into_os_string().into_string().expect("text")
    }
}

/// Folder of a device in sysfs.
pub(crate) fn sysfs(name: &str) -> Option<PathBuf> {
    let devices = fs::read_dir("/sys/bus/iio/devices").ok()?.flatten();
    devices.map(|entry| entry.path()).find(|folder| {
        fs::read_to_string(folder.join("name")).is_ok_and(|found| found.trim() == name)
    })
}

/// Sets an attribute of a device.
pub(crate) fn set(device: &str, attribute: &str, value: &str) {
    let path = sysfs(device).expect("a device").join(attribute);
    fs::write(path, value).expect(attribute);
}

pub(crate) fn number(device: &str, attribute: &str) -> u64 {
    let path = sysfs(device).expect("a device").join(attribute);
    fs::read_to_string(path).expect(attribute).trim().parse().expect("a number")
}

/// The frames that the simulated DAC has output, and how many of them were wrong.
pub(crate) fn dac() -> (u64, u64) {
    (number("stream-dac", "moved_frames"), number("stream-dac", "wrong_frames"))
}

/// Runs a command that has to succeed. Returns its standard error.
#[track_caller]
pub(crate) fn told(arguments: impl Words) -> String {
    let output = run(&arguments);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}\n{errors}");
    errors
}

#[track_caller]
pub(crate) fn json(arguments: impl Words) -> Value {
    serde_json::from_str(&ok([&arguments.words()[..], &["--json"]].concat())).expect("JSON")
}

/// Runs a command that has to fail with `code`. Returns its standard error.
#[track_caller]
pub(crate) fn fails(code: i32, arguments: impl Words) -> String {
    let output = run(&arguments);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}\n{errors}");
    let hint = errors.lines().last().unwrap_or_default();
    let by_clap = errors.starts_with("error: ");
    assert!(by_clap || hint.starts_with("   "), "{errors}");
    errors
}

/// The numbers of frames, all of them whole.
#[track_caller]
pub(crate) fn numbers(bytes: &[u8]) -> Vec<u64> {
    assert_eq!(bytes.len() % FRAME, 0, "a frame is cut");
    let number = |frame: &[u8]| u64::from_le_bytes(frame.try_into().expect("eight bytes"));
    bytes.chunks_exact(FRAME).map(number).collect()
}

/// Fails unless these are frames `first`, `first + 1`, ... Returns their number.
#[track_caller]
pub(crate) fn counted(first: u64, bytes: &[u8]) -> usize {
    let numbers = numbers(bytes);
    let wrong = (first..).zip(&numbers).find(|(wanted, found)| wanted != *found);
    assert_eq!(wrong, None, "another frame");
    numbers.len()
}

/// Fails unless a file holds frames 0, 1, 2, ... Returns their number.
#[track_caller]
pub(crate) fn frames(path: &str) -> usize {
    counted(0, &fs::read(path).expect("a file"))
}

/// How many are missing before and between these numbers.
#[track_caller]
pub(crate) fn missing(numbers: &[u64]) -> u64 {
    assert!(numbers.is_sorted_by(|before, next| before < next), "a frame is there twice");
    numbers.last().map_or(0, |last| last + 1 - numbers.len() as u64)
}

/// A file in JSON: a report, a description.
#[track_caller]
pub(crate) fn read_json(path: impl AsRef<std::path::Path>) -> Value {
    serde_json::from_slice(&fs::read(path).expect("a file")).expect("JSON")
}

pub(crate) fn start(arguments: impl Words) -> Child {
    let (out, errors) = (Stdio::piped(), Stdio::piped());
    program().args(arguments.words()).stdout(out).stderr(errors).spawn().expect("started")
}

/// Sends a signal to a command, one that ends it (`-INT`, `-TERM`, `-HUP`) when it handles that.
pub(crate) fn signal(child: &Child, name: &str) {
    let number = signal_number(name);
    if [libc::SIGHUP, libc::SIGINT, libc::SIGTERM].contains(&number) {
        eventually("no handler", || handles(child, number).unwrap_or(true));
    }
    signal_now(child, name);
}

fn signal_number(name: &str) -> i32 {
    match name {
        "-CONT" => libc::SIGCONT,
        "-HUP" => libc::SIGHUP,
        "-INT" => libc::SIGINT,
        "-KILL" => libc::SIGKILL,
        "-STOP" => libc::SIGSTOP,
        "-TERM" => libc::SIGTERM,
        _ => panic!("{name} is not used"),
    }
}

/// Sends a signal whatever the command is doing, perhaps not even its own code.
pub(crate) fn signal_now(child: &Child, name: &str) {
    // SAFETY: the call takes numbers. The child has not been waited for.
    assert_eq!(unsafe { libc::kill(child.id() as i32, signal_number(name)) }, 0);
}

/// Whether a process handles a signal (`SigCgt`, `proc_pid_status(5)`). `None` after its end.
fn handles(child: &Child, signal: i32) -> Option<bool> {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    if field("State:")?.starts_with('Z') {
        return None;
    }
    let mask = u64::from_str_radix(field("SigCgt:")?, 16).ok()?;
    Some(mask & (1 << (signal - 1)) != 0)
}

/// Waits until a device that was not in use is enabled.
#[track_caller]
pub(crate) fn until_it_is_enabled(device: &str) {
    eventually("not enabled", || number(device, "buffer0/enable") == 1);
}

/// Waits until a device that was not in use moves samples.
#[track_caller]
pub(crate) fn until_it_moves(device: &str) {
    until_it_is_enabled(device);
    eventually("no samples", || number(device, "moved_frames") > 0);
}

/// Runs a command, whatever its exit code. Returns the code and the report.
#[track_caller]
pub(crate) fn report(arguments: impl Words) -> (i32, Value) {
    end_of(start([&arguments.words()[..], &["--json"]].concat()))
}

/// Waits for the end of a command. Returns its exit code and its report.
#[track_caller]
pub(crate) fn end_of(child: Child) -> (i32, Value) {
    let output = child.wait_with_output().expect("its end");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let report = serde_json::from_slice(&output.stdout);
    let code = output.status.code().expect("no signal");
    (code, report.unwrap_or_else(|error| panic!("{error}, exit code {code}: {errors}")))
}

/// Makes a file of `count` frames with the numbers 0, 1, 2, ...
pub(crate) fn numbered(path: &str, count: u64) {
    let bytes: Vec<u8> = (0..count).flat_map(u64::to_le_bytes).collect();
    fs::write(path, bytes).expect("written");
}
