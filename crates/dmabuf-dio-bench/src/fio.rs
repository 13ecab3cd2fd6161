// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs fio, if it is installed.

use std::process::Command;

use serde_json::Value;

use crate::disk::DiskFile;
use crate::outcome::{Result, Status, Trouble};
use crate::process::Process;

/// Its version.
pub(crate) fn version() -> Option<String> {
    let output = Command::new("fio").arg("--version").output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// What fio prints about each job: CPU time in per cent of the elapsed time and, of reads, bytes, number, number per
/// second, and milliseconds.
pub(crate) fn run(options: impl IntoIterator<Item = String>) -> Result<Vec<Value>> {
    let mut command = Command::new("fio");
    command.args(["--output-format=json", "--thread", "--readonly", "--allow_file_create=0"]);
    command.arg("--direct=1").args(options);
    let printed = Process::start("fio", command, None, Status::Unavailable)?.finish()?;
    // Before the result there may be warnings.
    let json = printed.find('{').map_or("", |at| &printed[at..]);
    let mut output: Value = serde_json::from_str(json).unwrap_or_default();
    serde_json::from_value(output["jobs"].take()).map_err(|error| no_result(&error))
}

/// A number of a job.
pub(crate) fn number(job: &Value, name: &str) -> f64 {
    job.pointer(name).and_then(Value::as_f64).unwrap_or_default()
}

pub(crate) fn no_result(why: &dyn std::fmt::Display) -> Trouble {
    Trouble::broken(format!("fio printed no result: {why}"))
}

/// The option with the file's name, in which a colon separates names.
pub(crate) fn filename(disk: &DiskFile) -> String {
    let path = disk.path.as_deref().unwrap_or_else(|| "".as_ref());
    format!("--filename={}", path.display().to_string().replace(':', "\\:"))
}
