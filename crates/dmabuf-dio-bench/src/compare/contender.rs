// SPDX-License-Identifier: MIT OR Apache-2.0
//! The contenders: built-in ways, other programs, and the disk alone.
//!
//! A program that loads a file, built-in or other, is started for each file.
//! The program's argument is the path of the file, followed by `--verify SEED` if it is to compare
//! bytes. When ready, it prints [`READY`] and waits for a line on its standard input. Then it loads
//! the file and prints a [`LoaderReport`] in one line. If it fails, it prints the reason as the last
//! line of its standard error and exits with a code other than 0.

use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::fio::SequentialFio;
use super::safetensors::Tensors;
use super::settings::CompareSettings;
use crate::buffer::mapping::Pages;
use crate::measure::outcome::{Status, Trouble};
use crate::process::Process;
use crate::ways::held::PagesGot;
use crate::ways::registry::OwnWay;

/// The first line.
pub(crate) const READY: &str = r#"{"ready":true}"#;

/// The second line: the cost of loading, from the path to all bytes in memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LoaderReport {
    pub(crate) seconds: f64,
    pub(crate) user_seconds: f64,
    pub(crate) sys_seconds: f64,
    /// Time to free the memory.
    pub(crate) release_seconds: Option<f64>,
    pub(crate) bytes: u64,
    /// `null` without `--verify`.
    pub(crate) verified: Option<bool>,
    /// Version of the loader.
    pub(crate) version: Option<String>,
    pub(crate) note: Option<String>,
    /// The memory's page sizes, if the loader knows them.
    #[serde(default)]
    pub(crate) pages: Option<PagesGot>,
}

/// Another program that loads a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) name: String,
    pub(crate) command: String,
}

/// A contender.
#[derive(Clone, Debug)]
pub(crate) enum Contender {
    /// The disk's maximum.
    Fio(SequentialFio),
    Own(&'static OwnWay),
    Peer(Peer),
}

/// A file to load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    pub(crate) path: &'a Path,
    pub(crate) len: u64,
    /// Offset of its data.
    pub(crate) data_start: u64,
    pub(crate) seed: u64,
    pub(crate) tensors: Tensors,
}

impl Contender {
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Fio(fio) => fio.name(),
            Self::Own(own) => own.name.into(),
            Self::Peer(peer) => peer.name.clone(),
        }
    }

    pub(crate) fn settings(&self) -> CompareSettings {
        match self {
            Self::Own(own) => CompareSettings { pages: own.pages, read_ahead: own.read_ahead },
            Self::Fio(_) | Self::Peer(_) => {
                CompareSettings { pages: Pages::Huge, read_ahead: None }
            }
        }
    }

    /// Memory used for `bytes` of files.
    pub(crate) fn memory(&self, bytes: u64) -> u64 {
        match self {
            Self::Fio(fio) => fio.memory(),
            Self::Own(own) if !own.way.fills_page_cache() => bytes,
            Self::Own(_) | Self::Peer(_) => 2 * bytes,
        }
    }

    /// Memory required, not counting the page cache, which can be reclaimed.
    pub(crate) fn least_memory(&self, bytes: u64) -> u64 {
        self.memory(bytes).min(bytes)
    }

    /// Loads all files at once, each in its own process. `prepare` is called just before they begin.
    pub(crate) fn run(
        &self,
        sources: &[Source<'_>],
        verify: bool,
        prepare: impl FnOnce(),
    ) -> Result<Vec<LoaderReport>, Trouble> {
        if let Self::Fio(fio) = self {
            prepare();
            return fio.run(sources);
        }
        // That somebody else's program does not work here is no failure of ours.
        let ends = if matches!(self, Self::Peer(_)) { Status::Unavailable } else { Status::Failed };
        let start = |source| Process::start(&self.name(), self.command(source, verify)?, ends);
        let mut processes = sources.iter().map(start).collect::<Result<Vec<_>, _>>()?;
        for process in &mut processes {
            let line = process.line()?;
            if serde_json::from_str(&line).ok() != serde_json::from_str::<Value>(READY).ok() {
                return Err(self.broken(&format!("said {line:?} instead of {READY}")));
            }
        }
        prepare();
        for process in &mut processes {
            process.nudge();
        }
        let mut results = Vec::new();
        for (mut process, source) in processes.into_iter().zip(sources) {
            let line = process.line()?;
            let told = serde_json::from_str(&line)
                .map_err(|error| self.broken(&format!("printed no result: {error}")))?;
            results.push(self.accept(told, source, verify)?);
            process.finish()?;
        }
        Ok(results)
    }

    fn command(&self, source: &Source<'_>, verify: bool) -> Result<Command, Trouble> {
        let mut command = if let Self::Peer(peer) = self {
            let mut command = Command::new("sh");
            command.args(["-c", &format!("{} \"$@\"", peer.command), "sh"]);
            command
        } else {
            let program = std::env::current_exe()
                .map_err(|error| self.broken(&format!("cannot be found: {error}")))?;
            Command::new(program)
        };
        if let Self::Own(own) = self {
            command.args(["compare-way", "--way", own.id]);
            command.args(["--tensors", source.tensors.name()]);
        }
        command.arg(source.path);
        if verify {
            command.args(["--verify", &source.seed.to_string()]);
        }
        Ok(command)
    }

    fn accept(
        &self,
        told: LoaderReport,
        source: &Source<'_>,
        verify: bool,
    ) -> Result<LoaderReport, Trouble> {
        let data = source.len - source.data_start;
        if told.bytes < data {
            return Err(Trouble::short(&self.name(), told.bytes, data));
        }
        match told.verified {
            Some(false) => {
                let wrong = || format!("{} found a wrong byte", self.name());
                Err(Trouble::new(Status::Different, told.note.unwrap_or_else(wrong)))
            }
            None if verify => {
                Err(self.broken("did not compare the bytes, as requested by --verify"))
            }
            _ => Ok(told),
        }
    }

    fn broken(&self, how: &str) -> Trouble {
        Trouble::new(Status::Failed, format!("{} {how}", self.name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_of_other_loaders_are_parsed() {
        let line = r#"{"seconds": 0.5, "user_seconds": 0.1, "sys_seconds": 0.2,
            "release_seconds": null, "bytes": 4096, "verified": null, "version": "1.2",
            "note": null, "more": [1]}"#;
        let told: LoaderReport = serde_json::from_str(line).expect("a result");
        assert_eq!((told.bytes, told.pages, told.version.as_deref()), (4096, None, Some("1.2")));
        let again = serde_json::to_string(&told).expect("JSON");
        assert!(!again.contains('\n'));
        assert_eq!(serde_json::from_str::<LoaderReport>(&again).expect("a result"), told);
    }
}
