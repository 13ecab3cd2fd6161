// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cuts the power at points of a log: what was durable is on the disk, of the rest a part that is
//! drawn, as a disk's cache would lose it. Each state is mounted and compared.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Error;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use crate::mapper::{Mapped, SECTOR, Target};
use crate::powercut::log::{Entry, Log};
use crate::powercut::model::State;
use crate::powercut::volume::Kind;
use crate::random::Random;

/// Writes are torn into no smaller parts.
const BLOCK: u64 = 4096;
/// Of the writes between two flushes, one in so many is a point, too.
const BETWEEN: u64 = 8;

/// How many points there were of each kind.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) points: u64,
    pub(crate) kinds: BTreeMap<&'static str, u64>,
    /// How often a temporary name was seen.
    pub(crate) partials: usize,
    /// Writes that were lost at points, as a whole or in part.
    pub(crate) lost: u64,
    /// Rounds that ended early, as their log does not say which of two writes is newer.
    pub(crate) unordered: u64,
}

/// Where and how a log is replayed.
pub(crate) struct Replay<'a> {
    pub(crate) kind: &'a Kind,
    /// What is mounted.
    pub(crate) snapshot: Mapped,
    /// What is durable; zero at first.
    pub(crate) disk: File,
    pub(crate) disk_path: &'a Path,
    /// What mounts write goes there.
    pub(crate) aside: &'a Path,
    pub(crate) at: &'a Path,
    /// By the numbers of marks.
    pub(crate) states: &'a [State],
    pub(crate) random: Random,
    pub(crate) tally: &'a mut Tally,
}

#[allow(clippy::needless_pass_by_value)] // for map_err()
fn failed(error: Error) -> String {
    format!("the disk of the replay: {error}")
}

impl Replay<'_> {
    /// Goes through a log until `enough`. A failure says where.
    pub(crate) fn run(&mut self, log: &Log, enough: &dyn Fn(u64) -> bool) -> Result<(), String> {
        let mut pending: Vec<&Entry> = Vec::new();
        let mut mark = None;
        for (place, entry) in log.entries.iter().enumerate() {
            if enough(self.tally.points) {
                break;
            }
            let before = entry.flush && pending.iter().any(|entry| !entry.fua);
            if before {
                let keep = self.random.in_range(0..5);
                self.point(log, &pending, keep, mark, "before a flush", place)?;
            }
            if entry.flush {
                for entry in pending.drain(..) {
                    self.disk.write_all_at(&log.bytes(entry)?, entry.at).map_err(failed)?;
                }
            }
            if let Some(text) = &entry.mark {
                // The last mark is dm-log-writes' own.
                mark = text.parse().ok().or(mark);
                // If nothing was written between two operations, the end of the first says more.
                let begins =
                    mark.and_then(|mark| self.states.get(mark)).is_some_and(|state| state.runs);
                if !(begins && place > 0 && log.entries[place - 1].mark.is_some()) {
                    self.point(log, &pending, 0, mark, "mark", place)?;
                }
            } else if pending.iter().any(|before| before.fua && before.meets(entry)) {
                // dm-log-writes logs what is written by FUA at once, and other writes with the next flush.
                self.tally.unordered += 1;
                break;
            } else {
                pending.push(entry);
                let keep = self.random.in_range(0..5);
                if entry.flush || entry.fua {
                    let what = if entry.fua { "FUA" } else { "flush" };
                    self.point(log, &pending, keep, mark, what, place)?;
                } else if self.random.one_in(BETWEEN) {
                    self.point(log, &pending, keep, mark, "between", place)?;
                }
            }
        }
        Ok(())
    }

    /// Cuts the power here. `keep`: how much of the writes after the last flush is on the disk, from 0 to 4.
    fn point(
        &mut self,
        log: &Log,
        pending: &[&Entry],
        keep: u64,
        mark: Option<usize>,
        what: &'static str,
        place: usize,
    ) -> Result<(), String> {
        // What happens before the first mark is not judged.
        let Some((mark, state)) = mark.and_then(|mark| Some((mark, self.states.get(mark)?))) else {
            return Ok(());
        };
        *self.tally.kinds.entry(what).or_default() += 1;
        self.tally.points += 1;
        self.disk.sync_data().map_err(failed)?;
        self.cut(log, pending, keep, state).map_err(|why| {
            format!(
                "at entry {place} of the log ({what}, cache {keep}/4), mark {mark}, {}: {why}",
                state.what
            )
        })
    }

    fn cut(
        &mut self,
        log: &Log,
        pending: &[&Entry],
        keep: u64,
        state: &State,
    ) -> Result<(), String> {
        self.load("snapshot")?;
        let mut parts = Vec::new();
        for entry in pending {
            let bytes = log.bytes(entry)?;
            let kept = self.kept(entry, if entry.fua { 4 } else { keep });
            parts.extend(kept.into_iter().map(|(at, part)| (at, bytes[part].to_vec())));
        }
        if !parts.is_empty() {
            let file = File::options().write(true).open(&self.snapshot.path).map_err(failed)?;
            for (at, part) in parts {
                file.write_all_at(&part, at).map_err(failed)?;
            }
            file.sync_data().map_err(failed)?;
        }
        let mounted = self.kind.mount(&self.snapshot.path, self.at)?;
        self.tally.partials += state.check(&self.at.join("work"))?;
        mounted.unmount()?;
        self.load("error")
    }

    /// Another table takes less time than another device.
    fn load(&self, kind: &'static str) -> Result<(), String> {
        let (disk, aside) = (self.disk_path.display(), self.aside.display());
        let snapshot = format!("{disk} {aside} N 8");
        let arguments = if kind == "snapshot" { snapshot } else { String::new() };
        self.snapshot.load(&[Target { start: 0, length: self.kind.size / SECTOR, kind, arguments }])
    }

    /// The parts of a write that are on the disk: where, and of its bytes which.
    fn kept(&mut self, entry: &Entry, keep: u64) -> Vec<(u64, std::ops::Range<usize>)> {
        let mut parts = Vec::new();
        let whole = self.random.one_in(2);
        let all = self.random.in_range(0..4) < keep;
        let mut at = 0;
        while at < entry.length {
            let end = ((entry.at + at) / BLOCK * BLOCK + BLOCK - entry.at).min(entry.length);
            let kept = match keep {
                0 => false,
                4 => true,
                _ if whole => all,
                _ => self.random.in_range(0..4) < keep,
            };
            if kept {
                parts.push((entry.at + at, at as usize..end as usize));
            }
            at = end;
        }
        let on_disk: usize = parts.iter().map(|(_, part)| part.len()).sum();
        self.tally.lost += u64::from(on_disk as u64 != entry.length);
        parts
    }
}
