// SPDX-License-Identifier: MIT OR Apache-2.0
//! The contenders: built-in ways, other programs, and the disk alone; and the kernel's settings for each.

use std::path::Path;
use std::process::Command;

use dmabuf_dio_terminal::size::show_size;
use rustix::io::Errno as Os;
use serde_json::Value;

use super::child::{LoaderReport, READY};
use super::safetensors::Tensors;
use crate::buffer::mapping::{Pages, huge_page};
use crate::disk::DiskFile;
use crate::fio::{self, filename, no_result, number};
use crate::host::setting::Setting;
use crate::outcome::{Lack, NOT_ROOT, Result, Status, Trouble, failed, refused, whole};
use crate::pattern::Pattern;
use crate::process::Process;
use crate::ways::registry::{COMPARE, OwnWay};

/// fio reports whole milliseconds, so short runs read the file repeatedly.
const LEAST: u64 = 1 << 30;
/// Maximum duration of such a run, in seconds.
const MOST: u32 = 2;
/// Number of surplus huge pages allowed, and of reserved ones.
const OVERCOMMIT: &str = "/proc/sys/vm/nr_overcommit_hugepages";
const RESERVED: &str = "/proc/sys/vm/nr_hugepages";
/// Transparent huge pages for memfds.
const SHMEM: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
/// Huge pages in addition to the file's memory.
const SPARE: u64 = 64;

/// Another program that loads a file: its name and its command.
pub(crate) type Peer = (String, String);

/// How fio reads: the size of a block, how many are in flight, and the pages of its memory, whose content it ignores.
type SequentialFio = (u64, u64, Pages);

/// What reaches the disk's maximum.
const FIO: [SequentialFio; 5] = [
    (4 << 20, 4, Pages::Huge),
    (4 << 20, 8, Pages::Huge),
    (8 << 20, 8, Pages::Huge),
    (1 << 20, 32, Pages::Huge),
    (4 << 20, 8, Pages::Small),
];

/// A contender.
#[derive(Clone, Debug)]
pub(crate) enum Contender {
    Fio(SequentialFio),
    Own(&'static OwnWay),
    Peer(Peer),
}

impl Contender {
    /// All for a file of `len` bytes. For a small one the disk has no maximum.
    pub(crate) fn all(len: u64, peers: &[Peer]) -> impl Iterator<Item = Self> {
        let fio = FIO.into_iter().filter(move |(block, ..)| *block <= len).map(Self::Fio);
        fio.chain(COMPARE.iter().map(Self::Own)).chain(peers.iter().cloned().map(Self::Peer))
    }

    pub(crate) fn name(&self) -> String {
        match self {
            Self::Fio((block, depth, pages)) => {
                let pages = if *pages == Pages::Huge { "" } else { ", 4 KiB" };
                format!("fio {} x {depth}{pages}", show_size(*block))
            }
            Self::Own(own) => own.name.into(),
            Self::Peer((name, _)) => name.clone(),
        }
    }

    /// Memory used for `bytes` of files.
    pub(crate) fn memory(&self, bytes: u64) -> u64 {
        match self {
            Self::Fio((block, depth, _)) => block * depth,
            Self::Own(own) if !own.way.fills_page_cache() => bytes,
            Self::Own(_) | Self::Peer(_) => 2 * bytes,
        }
    }

    /// Changes the settings until the returned value is dropped. Huge pages for `bytes` are set if permitted;
    /// every other setting is required.
    pub(crate) fn set(&self, bytes: u64, device: Option<&str>) -> Result<Vec<Setting>> {
        let lacks: [Lack<'_>; 2] = [(&[Os::NOENT], "this device has no such setting"), NOT_ROOT];
        let required =
            |path: &str, value: &str| Setting::set(path, value).map_err(refused(path, &lacks));
        let (pages, read_ahead) = match self {
            Self::Own(own) => (own.pages, own.read_ahead),
            Self::Fio(_) | Self::Peer(_) => (Pages::Huge, None),
        };
        let mut held = Vec::new();
        if pages == Pages::Huge {
            let pages = bytes.div_ceil(huge_page()) + SPARE;
            held.extend(Setting::set(OVERCOMMIT, &pages.to_string()));
            held.extend(Setting::set(SHMEM, "advise"));
        } else {
            // A kernel without huge pages lacks the settings too.
            let known = [(OVERCOMMIT, "0"), (RESERVED, "0"), (SHMEM, "never")];
            for (path, value) in known.into_iter().filter(|(path, _)| Path::new(path).exists()) {
                held.push(required(path, value)?);
            }
        }
        if let Some(kib) = read_ahead {
            let path = format!("/sys/block/{}/queue/read_ahead_kb", device.unwrap_or("?"));
            held.push(required(&path, &kib.to_string())?);
        }
        Ok(held)
    }

    /// Loads all files at once, each in its own process. `prepare` is called just before they begin.
    pub(crate) fn run(
        &self,
        files: &[DiskFile],
        tensors: Tensors,
        verify: bool,
        prepare: impl FnOnce(),
    ) -> Result<Vec<LoaderReport>> {
        if let Self::Fio(fio) = self {
            prepare();
            return by_fio(*fio, files);
        }
        // That somebody else's program does not work here is no failure of ours.
        let ends = if matches!(self, Self::Peer(_)) { Status::Unavailable } else { Status::Failed };
        let start =
            |file| Process::start(&self.name(), self.command(file, tensors, verify)?, None, ends);
        let mut processes = files.iter().map(start).collect::<Result<Vec<_>, _>>()?;
        for process in &mut processes {
            let line = process.line()?;
            if serde_json::from_str(&line).ok() != serde_json::from_str::<Value>(READY).ok() {
                return Err(self.broken(&format!("said {line:?} instead of {READY}")));
            }
        }
        prepare();
        processes.iter_mut().for_each(Process::nudge);
        let mut results = Vec::new();
        for (mut process, file) in processes.into_iter().zip(files) {
            let told: LoaderReport = serde_json::from_str(&process.line()?)
                .map_err(|error| self.broken(&format!("printed no result: {error}")))?;
            self.accept(&told, file, verify)?;
            results.push(told);
            process.finish()?;
        }
        Ok(results)
    }

    fn command(&self, file: &DiskFile, tensors: Tensors, verify: bool) -> Result<Command> {
        let mut command = match self {
            Self::Peer((_, words)) => {
                let mut command = Command::new("sh");
                command.args(["-c", &format!("{words} \"$@\""), "sh"]);
                command
            }
            _ => Command::new(std::env::current_exe().map_err(failed("finding this program"))?),
        };
        if let Self::Own(own) = self {
            command.args(["compare-way", "--way", own.name, "--tensors", tensors.name()]);
        }
        command.args(&file.path);
        if let Some(content) = file.content.as_ref().filter(|_| verify) {
            command.args(["--verify", &content.seed().to_string()]);
        }
        Ok(command)
    }

    fn accept(&self, told: &LoaderReport, file: &DiskFile, verify: bool) -> Result<()> {
        let data = file.len - file.content.as_ref().map_or(0, Pattern::start);
        // Some count the header too.
        whole(&self.name(), told.bytes.min(data), data)?;
        match (told.verified, &told.difference) {
            (Some(false), Some(difference)) => Err(Trouble::different(difference)),
            (Some(false), None) => {
                Err(Trouble::different(format!("{} found a wrong byte", self.name())))
            }
            (None, _) if verify => {
                Err(self.broken("did not compare the bytes, as requested by --verify"))
            }
            _ => Ok(()),
        }
    }

    fn broken(&self, how: &str) -> Trouble {
        Trouble::broken(format!("{} {how}", self.name()))
    }
}

/// Reads all files at once. The result is scaled to reading each once.
fn by_fio((block, depth, pages): SequentialFio, files: &[DiskFile]) -> Result<Vec<LoaderReport>> {
    let memory = match pages {
        Pages::Huge => format!("--mem=mmaphuge --hugepage-size={}", huge_page()),
        Pages::Small => "--mem=mmap".to_owned(),
    };
    let all = format!("--rw=read --ioengine=io_uring --bs={block} --iodepth={depth} {memory}");
    let mut options: Vec<_> = all.split(' ').map(str::to_owned).collect();
    for (number, file) in files.iter().enumerate() {
        let size = LEAST.next_multiple_of(file.len);
        options.extend([
            format!("--name=file{number}"),
            filename(file),
            format!("--io_size={size}"),
        ]);
        options.extend((size > file.len).then(|| format!("--runtime={MOST}")));
    }
    let jobs = fio::run(options)?;
    let told = jobs.iter().zip(files).map(|(job, file)| told(job, file.len));
    told.map(|told| told.ok_or_else(|| no_result(&"nothing was read"))).collect()
}

fn told(job: &Value, len: u64) -> Option<LoaderReport> {
    let [bytes, ms] = ["/read/io_bytes", "/read/runtime"].map(|name| number(job, name));
    let seconds = ms / 1e3 * len as f64 / bytes;
    (bytes > 0.0 && ms > 0.0).then(|| LoaderReport {
        seconds,
        cpu_seconds: seconds * (number(job, "/usr_cpu") + number(job, "/sys_cpu")) / 100.0,
        bytes: len,
        verified: None,
        difference: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fio_figures_are_scaled_to_one_read_of_the_file() {
        let job = serde_json::json!({"read": {"io_bytes": 4_000_000, "runtime": 2000},
            "usr_cpu": 5.0, "sys_cpu": 10.0});
        let told = told(&job, 1_000_000).expect("a result");
        assert!((told.seconds - 0.5).abs() < 1e-9 && told.bytes == 1_000_000, "{told:?}");
        assert!((told.cpu_seconds - 0.075).abs() < 1e-9, "{told:?}");
    }
}
