// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs fio, if it is installed.

use std::path::Path;
use std::process::Command;

use serde::Deserialize;

use crate::outcome::{Status, Trouble};
use crate::process::Process;

/// Its version.
pub(crate) fn version() -> Option<String> {
    let output = Command::new("fio").arg("--version").output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Runs fio and returns its output for each job.
pub(crate) fn run(command: Command) -> Result<Vec<FioJob>, Trouble> {
    let process = Process::start("fio", command, None, Status::Unavailable)?;
    let printed = process.finish()?;
    // Before the result there may be warnings.
    let json = printed.find('{').map_or("", |at| &printed[at..]);
    let output: FioOutput = serde_json::from_str(json).map_err(|error| no_result(&error))?;
    Ok(output.jobs)
}

pub(crate) fn no_result(why: &dyn std::fmt::Display) -> Trouble {
    let reason = format!("fio printed no result: {why}");
    Trouble::new(Status::Failed, reason)
}

/// The option with the file's name, in which a colon separates names.
pub(crate) fn filename(path: &Path) -> String {
    format!("--filename={}", path.display().to_string().replace(':', "\\:"))
}

#[derive(Debug, Deserialize)]
struct FioOutput {
    jobs: Vec<FioJob>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct FioJob {
    pub(crate) read: FioRead,
    /// CPU time in per cent of the elapsed time.
    pub(crate) usr_cpu: f64,
    pub(crate) sys_cpu: f64,
}

#[derive(Debug, Deserialize)]
pub(crate) struct FioRead {
    pub(crate) io_bytes: u64,
    #[serde(default)]
    pub(crate) total_ios: u64,
    #[serde(default)]
    pub(crate) iops: f64,
    /// Milliseconds.
    pub(crate) runtime: u64,
}
