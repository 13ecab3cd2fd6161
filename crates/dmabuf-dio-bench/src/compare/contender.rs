// SPDX-License-Identifier: MIT OR Apache-2.0
//! The contenders: built-in ways, other programs, and the disk alone.

use std::process::Command;

use serde_json::Value;

use super::contract::{LoaderReport, READY, Source};
use super::fio::SequentialFio;
use super::settings::CompareSettings;
use crate::buffer::mapping::Pages;
use crate::measure::outcome::{Status, Trouble};
use crate::process::Process;
use crate::ways::registry::OwnWay;

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
